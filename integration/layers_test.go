package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/headgate/headgate"

// A room is one package and what its code, tests apart, may import.
type room struct {
	ours      []string // rooms below it
	libraries []string // module paths; the table's third-party column
	kit       bool     // only tests import it
}

// rooms is the table of the design, section 4. A room that is not built yet has
// its row all the same.
var rooms = map[string]room{
	"gitstore/ledger":                   {},
	"gitstore/ledger/ledgertest":        {ours: []string{"gitstore/ledger"}, libraries: []string{rapidLib}, kit: true},
	"gitstore/ledger/pebbledb":          {ours: []string{"gitstore/ledger"}, libraries: []string{pebbleLib}},
	"gitstore/ledger/redisdb":           {ours: []string{"gitstore/ledger"}, libraries: []string{redisLib}},
	"gitstore/ledger/redisdb/redistest": {kit: true},
	"gitstore/packs":                    {ours: []string{"gitstore/ledger", "refpolicy"}, libraries: []string{goGitLib}},
	"gitstore/packs/packstest":          {ours: []string{"gitstore/packs"}, kit: true},
	"gitstore/gitcmd":                   {ours: []string{"gitstore/ledger", "refpolicy"}},
	"gitstore/wire":                     {ours: []string{"gitstore/ledger", "refpolicy"}},
	"gitstore":                          {ours: []string{"gitstore/ledger", "gitstore/packs", "gitstore/gitcmd", "gitstore/wire", "refpolicy"}, libraries: []string{goGitLib, compressLib}},
	"refpolicy":                         {},
	"refpolicy/sigcheck":                {libraries: []string{openpgpLib, cryptoLib}},
	"tokens":                            {ours: []string{"refpolicy", "gitstore/ledger"}, libraries: []string{jwtLib}},
	"sessions":                          {ours: []string{"gitstore/ledger"}},
	"sessions/snapshot":                 {ours: []string{"gitstore/ledger"}, libraries: []string{compressLib, chunkerLib}},
	"sessions/snapshot/snapshottest":    {ours: []string{"gitstore/ledger", "sessions/snapshot"}, kit: true},
	"sessions/seal":                     {libraries: []string{compressLib}},
	"httpapi":                           {ours: belowHTTP, libraries: []string{echoLib, prometheusLib}},
	"httpapi/webhook":                   {ours: belowHTTP, libraries: []string{echoLib}},
	"httpapi/lfs":                       {ours: belowHTTP, libraries: []string{echoLib}},
	"httpapi/review":                    {ours: belowHTTP, libraries: []string{echoLib}},
	"httpapi/client":                    {ours: belowHTTP},
	"cmd/headgate":                      {ours: append([]string{"httpapi", "httpapi/webhook", "httpapi/lfs", "httpapi/review", "httpapi/client"}, belowHTTP...), libraries: []string{kongLib, tomlLib}},
}

// belowHTTP is "everything above" the row of httpapi.
var belowHTTP = []string{
	"gitstore", "gitstore/ledger", "gitstore/ledger/pebbledb", "gitstore/ledger/redisdb",
	"gitstore/packs", "gitstore/gitcmd", "gitstore/wire",
	"refpolicy", "refpolicy/sigcheck", "tokens", "sessions", "sessions/snapshot", "sessions/seal",
}

const (
	pebbleLib     = "github.com/cockroachdb/pebble/v2"
	redisLib      = "github.com/redis/go-redis/v9"
	goGitLib      = "github.com/go-git/go-git/v5"
	compressLib   = "github.com/klauspost/compress"
	chunkerLib    = "github.com/restic/chunker"
	openpgpLib    = "github.com/ProtonMail/go-crypto"
	cryptoLib     = "golang.org/x/crypto"
	jwtLib        = "github.com/golang-jwt/jwt/v5"
	echoLib       = "github.com/labstack/echo/v4"
	prometheusLib = "github.com/prometheus/client_golang"
	kongLib       = "github.com/alecthomas/kong"
	tomlLib       = "github.com/pelletier/go-toml/v2"
	uuidLib       = "github.com/google/uuid"
	syncLib       = "golang.org/x/sync"
	rapidLib      = "pgregory.net/rapid"
)

// everywhere may be imported by any room; x/sync is the standard library's own
// extension and stands in the design's list without a room.
var everywhere = []string{uuidLib, syncLib}

// metricsFile is the one file of httpapi that may know prometheus.
const metricsFile = "metrics.go"

// topLevel is every name that may stand at the top of the tree, names that begin
// with a dot apart.
var topLevel = []string{
	"cmd", "gitstore", "refpolicy", "tokens", "sessions", "httpapi", "integration",
	"go.mod", "go.sum", "Taskfile.yml", "README.md", "LICENSE",
}

type goPackage struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func goOutput(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
		}
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(goOutput(t, "list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports", "./...")))
	var all []goPackage
	for {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		all = append(all, p)
	}
}

// inTests reports whether a package is part of the tests over the whole, which may
// import every room.
func inTests(name string) bool {
	return name == "integration" || strings.HasPrefix(name, "integration/")
}

func TestRoomsImportWhatTheTableAllows(t *testing.T) {
	for _, p := range packages(t) {
		name, _ := strings.CutPrefix(p.ImportPath, module+"/")
		if inTests(name) {
			continue
		}
		r, ok := rooms[name]
		if !ok {
			t.Errorf("package %s is no room of the table", name)
			continue
		}
		for _, path := range p.Imports {
			if why := r.refuses(path); why != "" {
				t.Errorf("%s imports %s: %s", name, path, why)
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if why := refusesInTests(path); why != "" {
				t.Errorf("tests of %s import %s: %s", name, path, why)
			}
		}
	}
}

// refuses says why r's code may not import path; empty: it may.
func (r room) refuses(path string) string {
	if ours, ok := strings.CutPrefix(path, module+"/"); ok {
		switch {
		case rooms[ours].kit && !r.kit:
			return "a kit is for tests"
		case !slices.Contains(r.ours, ours):
			return "the table lets it import " + list(r.ours) + " of ours"
		}
		return ""
	}
	if isStandard(path) || within(path, everywhere) || within(path, r.libraries) {
		return ""
	}
	return "the table lets it import " + list(r.libraries) + " of others"
}

// refusesInTests: a test may reach into any room but those above all, and use any
// library that the program uses, and rapid.
func refusesInTests(path string) string {
	if ours, ok := strings.CutPrefix(path, module+"/"); ok {
		if _, known := rooms[ours]; !known {
			return "it is no room of the table"
		}
		return ""
	}
	if isStandard(path) || within(path, everywhere) || within(path, allLibraries()) {
		return ""
	}
	return "it is no library of the design's list"
}

func allLibraries() []string {
	var all []string
	for _, r := range rooms {
		all = append(all, r.libraries...)
	}
	return all
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func within(path string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		return path == m || strings.HasPrefix(path, m+"/")
	})
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// The rooms below import downwards only, so the table itself has no ring and no
// room on one level knows the other.
func TestTableHasNoRing(t *testing.T) {
	state := map[string]int{} // 1: on the way down from it, 2: done
	var visit func(string, []string)
	visit = func(name string, way []string) {
		if state[name] == 1 {
			t.Fatalf("the table lets these import each other: %s", strings.Join(append(way, name), " -> "))
		}
		if state[name] == 2 {
			return
		}
		state[name] = 1
		for _, below := range rooms[name].ours {
			if _, ok := rooms[below]; !ok {
				t.Errorf("the row of %s names %s, which has no row", name, below)
			}
			visit(below, append(way, name))
		}
		state[name] = 2
	}
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		visit(name, nil)
	}
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatalf("parse %s: %v", file, err)
	}
	var paths []string
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatalf("%s: import %s: %v", file, i.Path.Value, err)
		}
		paths = append(paths, path)
	}
	return paths
}

// Prometheus stays in one file of httpapi.
func TestMetricsLibraryStaysInOneFile(t *testing.T) {
	for _, p := range packages(t) {
		if p.ImportPath != module+"/httpapi" {
			continue
		}
		for _, file := range p.GoFiles {
			if file != metricsFile && slices.ContainsFunc(importsOf(t, p.Dir+"/"+file), func(path string) bool { return within(path, []string{prometheusLib}) }) {
				t.Errorf("httpapi/%s imports prometheus; only %s may", file, metricsFile)
			}
		}
		return
	}
	t.Error("go list ./... knows no httpapi")
}

// Nothing that only tests need is linked into the program.
func TestProgramHasNoTestCode(t *testing.T) {
	deps := strings.Fields(string(goOutput(t, "list", "-deps", "./cmd/headgate")))
	if len(deps) < 50 {
		t.Fatalf("go list -deps ./cmd/headgate gave %d packages", len(deps))
	}
	for _, path := range deps {
		ours, _ := strings.CutPrefix(path, module+"/")
		if rooms[ours].kit || within(path, []string{rapidLib}) || inTests(ours) {
			t.Errorf("cmd/headgate is linked with %s", path)
		}
	}
}

func TestTopLevelIsFixed(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	seen := map[string]bool{}
	for _, file := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		top, _, _ := strings.Cut(file, "/")
		if seen[top] || strings.HasPrefix(top, ".") {
			continue
		}
		seen[top] = true
		if !slices.Contains(topLevel, top) {
			t.Errorf("%s stands at the top of the tree, where only %s may", top, strings.Join(topLevel, ", "))
		}
	}
	if len(seen) == 0 {
		t.Error("git ls-files listed nothing")
	}
}

// The checks above are themselves checked: each refuses what it is there for.
func TestLayerRulesRefuse(t *testing.T) {
	for _, tc := range []struct {
		room, path string
		allowed    bool
	}{
		{"refpolicy", "strings", true},
		{"refpolicy", uuidLib, true},
		{"refpolicy", module + "/gitstore", false},
		{"refpolicy", goGitLib + "/plumbing", false},
		{"gitstore", goGitLib + "/plumbing", true},
		{"gitstore", pebbleLib, false},
		{"gitstore", module + "/gitstore/ledger/pebbledb", false},
		{"gitstore", module + "/sessions", false},
		{"sessions", module + "/gitstore", false}, // one level
		{"tokens", module + "/sessions", false},
		{"gitstore/packs", module + "/gitstore/packs/packstest", false},
		{"httpapi", module + "/cmd/headgate", false},
		{"httpapi", module + "/gitstore/ledger/redisdb/redistest", false},
		{"cmd/headgate", module + "/httpapi", true},
		{"cmd/headgate", "github.com/cockroachdb/pebble/v2x", false}, // not within the module of that name
	} {
		if why := rooms[tc.room].refuses(tc.path); (why == "") != tc.allowed {
			t.Errorf("may %s import %s? %q, want allowed %v", tc.room, tc.path, why, tc.allowed)
		}
	}
	if why := refusesInTests("github.com/stretchr/testify/require"); why == "" {
		t.Error("tests may import a library that is on no list")
	}
}
