package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// httpBackend serves root, a folder of bare repositories, as one would without
// headgate: git http-backend behind nginx and fcgiwrap, eight workers, no token.
// Its repositories are at http://ADDRESS/NAME.
func (w *workshop) httpBackend(ctx context.Context, root string) (address string, err error) {
	dir := filepath.Join(w.dir, "nginx")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	backend, err := git(ctx, "", nil, "--exec-path")
	if err != nil {
		return "", err
	}
	if address, err = freeAddress(); err != nil {
		return "", err
	}
	socket := filepath.Join(dir, "cgi.sock")
	config := filepath.Join(dir, "nginx.conf")
	text := strings.NewReplacer(
		"@user", nginxUser(), "@dir", dir, "@address", address, "@socket", socket,
		"@backend", filepath.Join(backend, "git-http-backend"), "@root", root,
	).Replace(nginxConfig)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", err
	}
	if err := os.RemoveAll(socket); err != nil { // of an earlier group
		return "", err
	}
	err = w.run(exec.Command("fcgiwrap", "-c", "8", "-s", "unix:"+socket))
	if err == nil {
		err = w.run(exec.Command("nginx", "-p", dir, "-c", config, "-e", filepath.Join(dir, "error.log")))
	}
	if err != nil {
		return "", fmt.Errorf("%w (both are packages of the system)", err)
	}
	return address, await(ctx, address)
}

// nginxUser has nginx, when root starts it, keep to that user: the folders are its own.
func nginxUser() string {
	if os.Getuid() == 0 {
		return "user root;"
	}
	return ""
}

const nginxConfig = `
@user
daemon off;
worker_processes 2;
pid @dir/pid;
events { worker_connections 256; }
http {
  access_log off;
  keepalive_requests 1000000;
  client_max_body_size 0;
  client_body_temp_path @dir/body; proxy_temp_path @dir/proxy; fastcgi_temp_path @dir/fastcgi; uwsgi_temp_path @dir/uwsgi; scgi_temp_path @dir/scgi;
  server {
    listen @address;
    location / {
      fastcgi_pass unix:@socket;
      fastcgi_buffers 32 64k;
      fastcgi_max_temp_file_size 0;
      fastcgi_read_timeout 600s;
      fastcgi_param SCRIPT_FILENAME @backend;
      fastcgi_param GIT_PROJECT_ROOT @root;
      fastcgi_param GIT_HTTP_EXPORT_ALL 1;
      fastcgi_param GIT_CONFIG_NOSYSTEM 1;
      fastcgi_param GIT_CONFIG_GLOBAL /dev/null;
      fastcgi_param GIT_PROTOCOL $http_git_protocol;
      fastcgi_param PATH_INFO $uri;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
    }
  }
}
`

// run starts a helper and ends it with the group. fcgiwrap leaves its workers behind
// when it ends alone, so a helper has a process group that ends as a whole.
func (w *workshop) run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.onStop(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// await asks until somebody listens at address.
func await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		answer, err := http.Get("http://" + address + "/")
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("nobody listens at %s", address), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
