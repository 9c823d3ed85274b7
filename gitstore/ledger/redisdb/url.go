package redisdb

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is where a ledger URL points.
type target struct {
	addrs    []string
	cluster  bool
	tls      *tls.Config
	username string
	password string
	db       int
}

// parseURL reads
//
//	redis://[user:password@]host[:port][/db]              rediss:// with TLS
//	redis+cluster://[user:password@]host[:port],host...   rediss+cluster:// with TLS
//
// A port left out is 6379, a db left out 0. A cluster has no numbered databases;
// the hosts are where to ask for its layout.
func parseURL(raw string) (target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	t := target{cluster: strings.HasSuffix(scheme, "+cluster")}
	kind := strings.TrimSuffix(scheme, "+cluster")
	if !ok || (kind != "redis" && kind != "rediss") {
		return target{}, fmt.Errorf("%w: want redis://, rediss://, redis+cluster:// or rediss+cluster://", ErrBadURL)
	}
	authority, path, _ := strings.Cut(rest, "/")
	if err := t.setPath(path); err != nil {
		return target{}, err
	}
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		if err := t.setUser(authority[:at]); err != nil {
			return target{}, err
		}
	}
	if err := t.setHosts(hosts); err != nil {
		return target{}, err
	}
	if kind == "rediss" {
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12} // the name to verify is each address's own
	}
	return t, nil
}

func (t *target) setPath(path string) error {
	if path == "" {
		return nil
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return fmt.Errorf("%w: the path is a database number", ErrBadURL)
	}
	if t.cluster && db != 0 {
		return fmt.Errorf("%w: a cluster has database 0 only", ErrBadURL)
	}
	t.db = db
	return nil
}

func (t *target) setUser(info string) error {
	user, password, _ := strings.Cut(info, ":")
	var err error
	if t.username, err = url.PathUnescape(user); err != nil {
		return fmt.Errorf("%w: the user is not percent-encoded", ErrBadURL)
	}
	if t.password, err = url.PathUnescape(password); err != nil {
		return fmt.Errorf("%w: the password is not percent-encoded", ErrBadURL)
	}
	return nil
}

func (t *target) setHosts(hosts string) error {
	for _, h := range strings.Split(hosts, ",") {
		host, port, err := net.SplitHostPort(h)
		if err != nil { // no port, or a bare IPv6 address
			host, port = strings.Trim(h, "[]"), "6379"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%w: port out of range", ErrBadURL)
		}
		if host == "" || strings.ContainsAny(host, "/?#@[] \t\r\n") {
			return fmt.Errorf("%w: no usable host", ErrBadURL)
		}
		t.addrs = append(t.addrs, net.JoinHostPort(host, port))
	}
	if !t.cluster && len(t.addrs) != 1 {
		return fmt.Errorf("%w: several hosts need redis+cluster://", ErrBadURL)
	}
	return nil
}
