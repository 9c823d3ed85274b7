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
	master   string // by Sentinel: the master's name; addrs are the sentinels
	tls      *tls.Config
	username string
	password string
	db       int

	sentinelUser, sentinelPassword string
}

// ports are where the servers listen that a URL names, unless it says otherwise.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// parseURL reads
//
//	redis://[user:password@]host[:port][/db]              rediss:// with TLS
//	redis+cluster://[user:password@]host[:port],host...   rediss+cluster:// with TLS
//	redis+sentinel://[user:password@]host[:port],host.../master[/db][?user=U&password=P]
//	                                                      rediss+sentinel:// with TLS
//
// A port left out is 6379, a sentinel's 26379, a db left out 0. A cluster has no
// numbered databases; the hosts are where to ask for its layout. The hosts with
// Sentinel are the sentinels, master is the name they know the master by, and the
// user and password behind the question mark are for the sentinels themselves.
func parseURL(raw string) (target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	kind, by, _ := strings.Cut(scheme, "+")
	t := target{cluster: by == "cluster"}
	if !ok || (kind != "redis" && kind != "rediss") || (by != "" && by != "cluster" && by != "sentinel") || strings.HasSuffix(scheme, "+") {
		return target{}, fmt.Errorf("%w: want redis://, redis+cluster:// or redis+sentinel://, and rediss for TLS", ErrBadURL)
	}
	authority, path, _ := strings.Cut(rest, "/")
	port := redisPort
	if by == "sentinel" {
		port = sentinelPort
		var err error
		if path, err = t.setMaster(path); err != nil {
			return target{}, err
		}
	}
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
	if err := t.setHosts(hosts, port); err != nil {
		return target{}, err
	}
	if kind == "rediss" {
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12} // the name to verify is each address's own
	}
	return t, nil
}

// setMaster reads master[/db][?user=U&password=P] and gives the db.
func (t *target) setMaster(path string) (db string, err error) {
	path, query, _ := strings.Cut(path, "?")
	name, db, _ := strings.Cut(path, "/")
	if t.master, err = url.PathUnescape(name); err != nil || name == "" {
		return "", fmt.Errorf("%w: the path is the name of a Sentinel's master", ErrBadURL)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", fmt.Errorf("%w: what follows the question mark is not percent-encoded", ErrBadURL)
	}
	for name := range q {
		if name != "user" && name != "password" {
			return "", fmt.Errorf("%w: behind the question mark stand user and password", ErrBadURL)
		}
	}
	t.sentinelUser, t.sentinelPassword = q.Get("user"), q.Get("password")
	return db, nil
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

func (t *target) setHosts(hosts, defaultPort string) error {
	for _, h := range strings.Split(hosts, ",") {
		host, port, err := net.SplitHostPort(h)
		if err != nil { // no port, or a bare IPv6 address
			host, port = strings.Trim(h, "[]"), defaultPort
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%w: port out of range", ErrBadURL)
		}
		if host == "" || strings.ContainsAny(host, "/?#@[] \t\r\n") {
			return fmt.Errorf("%w: no usable host", ErrBadURL)
		}
		t.addrs = append(t.addrs, net.JoinHostPort(host, port))
	}
	if !t.cluster && t.master == "" && len(t.addrs) != 1 {
		return fmt.Errorf("%w: several hosts need redis+cluster:// or redis+sentinel://", ErrBadURL)
	}
	return nil
}

// Redacted is a ledger's URL without its passwords, for messages.
func Redacted(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw
	}
	rest, _, query := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, _, _ := strings.Cut(authority[:at], ":")
		authority = user + ":xxxxx@" + authority[at+1:]
	}
	if query {
		path += "?xxxxx"
	}
	return scheme + "://" + authority + "/" + path
}
