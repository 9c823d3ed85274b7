package redistest

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

const clusterNodes = 3

// Cluster is a Redis Cluster of three masters without replicas.
type Cluster struct {
	Nodes []*Server
}

// StartCluster starts three servers, joins them and waits until every one of them
// says that the cluster serves all slots. args are as for Start.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	need(t, "redis-cli")
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"}, args...)
	c := &Cluster{}
	create := []string{"--cluster", "create"}
	for range clusterNodes {
		s := Start(t, args...)
		c.Nodes = append(c.Nodes, s)
		create = append(create, s.Addr())
	}
	create = append(create, "--cluster-replicas", "0", "--cluster-yes")
	if out, err := exec.Command("redis-cli", create...).CombinedOutput(); err != nil {
		t.Fatalf("create redis cluster: %v: %s", err, out)
	}
	c.WaitOK(t)
	return c
}

// WaitOK waits until every node says cluster_state:ok.
func (c *Cluster) WaitOK(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(startLimit)
	for _, s := range c.Nodes {
		for {
			info, err := s.cli("cluster", "info")
			if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("cluster info of %s after %s: %q, %v, want cluster_state:ok", s.Addr(), startLimit, info, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// URL is the cluster as redisdb.Open takes it.
func (c *Cluster) URL() string {
	var hosts []string
	for _, s := range c.Nodes {
		hosts = append(hosts, s.Addr())
	}
	return "redis+cluster://" + strings.Join(hosts, ",")
}
