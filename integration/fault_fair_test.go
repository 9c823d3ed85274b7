package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// While one org's fetches queue for the only git process, another org's fetch is served
// next and not after them all (item 6).
func TestG05_QueuedFetchesOfOneOrgDelayNoOther(t *testing.T) {
	const greedy = 60
	dir := t.TempDir()
	program, err := programs.Race()
	if err != nil {
		t.Fatal(err)
	}
	globex, err := harness.NewOrg(program, filepath.Join(dir, "keys"), "globex")
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, withConfig("[limits]\ngit_processes = 1\ngit_wait = \"2m\"\n"), func(o *harness.Options) { o.Trust = append(o.Trust, globex.Trust()) })
	other := &gate{Server: g.Server, t: t, org: globex, git: g.git}
	r, head := g.seeded()
	modest, theirs := other.seeded()
	fetch := func(r *repo, want string, depth int) { // each another, so that none is shared
		a := r.post(false, "git-upload-pack", "", pkt("want "+want+" side-band-64k shallow\n")+pkt("deepen "+fmt.Sprint(depth))+"0000"+pkt("done\n"))
		if a.Status != 200 || !strings.Contains(string(a.Body), "PACK") {
			t.Errorf("fetch of depth %d = %s", depth, a)
		}
	}
	least := greedy
	for round := range 3 {
		var done atomic.Int64
		var all sync.WaitGroup
		for i := range greedy {
			all.Go(func() { fetch(r, head, 1000*round+i+1); done.Add(1) })
		}
		for end := time.Now().Add(time.Minute); done.Load() < 3 && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // between two looks
		}
		before := done.Load()
		fetch(modest, theirs, round+1)
		least = min(least, int(done.Load()-before))
		all.Wait()
		if least <= greedy/4 {
			return
		}
	}
	t.Errorf("at best %d of %d queued fetches of one org were served before another org's one", least, greedy)
}
