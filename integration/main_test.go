package integration

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// programs builds the program for all tests.
var programs *harness.Builder

// seed is where every random test starts; HEADGATE_SEED repeats a run.
var seed uint64

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	seed = uint64(time.Now().UnixNano())
	if text := os.Getenv("HEADGATE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			fmt.Fprintln(os.Stderr, "HEADGATE_SEED:", err)
			return 1
		}
	}
	fmt.Printf("HEADGATE_SEED=%d\n", seed)
	var err error
	if programs, err = harness.NewBuilder(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer programs.Remove()
	return m.Run()
}

// random is a source of its own for the test with this name.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	t.Logf("HEADGATE_SEED=%d", seed)
	var sum uint64
	for _, c := range []byte(t.Name()) {
		sum = sum*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, sum))
}

// setting is a number from the environment.
func setting(t testing.TB, name string, def int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
