package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/sessions/seal"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// marker stands in a sealed image, and nowhere else.
const marker = "the sandbox's own secret, which nobody but its customer reads: 9f2c41d07b"

// A marked image has the marker on every 16th page.
type marked struct{ *snapshottest.Image }

func (m marked) text(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for at := 100; at+len(marker) < b.Len(); at += 16 * snapshottest.PageBytes {
		copy(b.Bytes()[at:], marker)
	}
	return b.Bytes()
}

// A sealed save: neither what the server has on disk, nor its logs, nor its memory hold
// anything of the image or the data key; the customer's key alone does not open it, nor
// the server's alone; both together do. What has not changed is still stored once (B-11,
// PN-26).
func TestB11_PN26_SealedSaves(t *testing.T) {
	need(t, "gcore")
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	keys := t.TempDir()
	g.succeeds("keygen", "--capture", "--out", keys)
	private, public := filepath.Join(keys, "capture.key.pem"), filepath.Join(keys, "capture.pub.pem")
	image := memory(21, 4)
	text := marked{image}.text(t)
	file := newImageFile(t, bytes.NewBuffer(text))
	saved := u.save(file, "--seal", public)
	if !saved.Sealed || saved.State != "ready" {
		t.Errorf("sealed save = %+v, want it sealed and ready", saved)
	}
	path, _ := u.restore(saved.SHA, "--capture-key", private)
	wantImage(t, "sealed", path, bytes.NewBuffer(text))
	dump := g.dump(t)
	later := marked{image.Mutate(1, 0.05, snapshottest.Clustered)}.text(t)
	next := u.save(newImageFile(t, bytes.NewBuffer(later)), "--seal", public)
	if !next.Sealed || next.New > saved.Stored/3 {
		t.Errorf("second sealed save = %+v, want little of %d bytes to be new", next, saved.Stored)
	}
	path, _ = u.restore(next.SHA, "--capture-key", private)
	wantImage(t, "the second", path, bytes.NewBuffer(later))
	g.wantNotHeld(t, "", u.sealedSecrets(t), dump, g.dump(t))
	u.wantBothKeys(t, saved.SHA, private)
}

// sealedSecrets are what must be nowhere at the server, by what they are: the marker,
// and the data key that the runner keeps.
func (u *runner) sealedSecrets(t testing.TB) map[string][]byte {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(u.state, "*.seal"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the runner keeps %v, %v; want one data key", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	secret := decoded[struct{ Secret []byte }](t, string(text)).Secret
	if len(secret) < 16 {
		t.Fatalf("data key of %d bytes in %s", len(secret), found[0])
	}
	return map[string][]byte{
		"the marker": []byte(marker), "a part of the marker": []byte(marker[10:40]), "the data key": secret,
		"the data key in base64": []byte(base64.StdEncoding.EncodeToString(secret)[:30]), "the data key in hexadecimal": []byte(hex.EncodeToString(secret)[:32]),
	}
}

// dump is the server's memory.
func (g *gate) dump(t testing.TB) []byte {
	t.Helper()
	base := filepath.Join(t.TempDir(), "core")
	out, err := exec.Command("gcore", "-o", base, fmt.Sprint(g.PID())).CombinedOutput()
	if err != nil {
		t.Fatalf("gcore: %v\n%s", err, out)
	}
	text, err := os.ReadFile(fmt.Sprintf("%s.%d", base, g.PID()))
	if err != nil || len(text) < 1<<20 {
		t.Fatalf("dump of %d bytes, %v\n%s", len(text), err, out)
	}
	os.Remove(fmt.Sprintf("%s.%d", base, g.PID()))
	return text
}

// wantNotHeld looks for secrets in dumps, logs and the data folder, in what is compressed
// there as well.
func (g *gate) wantNotHeld(t testing.TB, what string, secrets map[string][]byte, dumps ...[]byte) {
	t.Helper()
	look := func(where string, text []byte) {
		for name, secret := range secrets {
			if bytes.Contains(text, secret) {
				t.Errorf("%s%s is in %s", what, name, where)
			}
		}
	}
	for _, dump := range dumps {
		look("the server's memory", dump)
	}
	look("the logs", []byte(g.Logs()))
	if err := g.DataFiles(func(path string, content []byte) error {
		look(path, content)
		for n, frame := range frames(content) {
			look(fmt.Sprintf("frame %d of %s", n, path), frame)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

var inflater = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}()

// inflated is the content of a zstd frame; nil: it is none.
func inflated(frame []byte) []byte {
	if !bytes.HasPrefix(frame, zstdMagic) {
		return nil
	}
	content, err := inflater.DecodeAll(frame, nil)
	if err != nil {
		return nil
	}
	return content
}

// frames are the contents of the zstd frames in a file, as far as each can be read.
func frames(content []byte) (all [][]byte) {
	for {
		at := bytes.Index(content, zstdMagic)
		if at < 0 {
			return all
		}
		content = content[at:]
		d, err := zstd.NewReader(bytes.NewReader(content), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err == nil {
			var b bytes.Buffer
			_, _ = d.WriteTo(&b) // as much as there is
			d.Close()
			all = append(all, b.Bytes())
		}
		content = content[len(zstdMagic):]
	}
}

// wantBothKeys tries to open a sealed snapshot with one key and with the other.
func (u *runner) wantBothKeys(t *testing.T, sha, private string) {
	t.Helper()
	g := u.r.g
	to := filepath.Join(t.TempDir(), "restored")
	u.fails("restore", []string{sha, to}, "sealed, key needed")
	wantCode(t, "image of a sealed snapshot", u.image(sha, ""), 409, "sealed")
	others := t.TempDir()
	g.succeeds("keygen", "--capture", "--out", others)
	u.fails("restore", []string{"--capture-key", filepath.Join(others, "capture.key.pem"), sha, to}, "sealed")
	if _, err := os.Stat(to); err == nil {
		t.Error("a restore without the right key makes a file")
	}
	// The customer's key alone: what the server stores is wrapped once more.
	a := g.do(harness.Ask{Path: u.r.path("/snapshots/" + sha), Token: u.token})
	m, err := snapshot.DecodeManifest([]byte(rawOf(t, a, "manifest")))
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := seal.ParseEnvelope(m.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(private)
	if err != nil {
		t.Fatal(err)
	}
	customer, err := seal.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seal.OpenInner(envelope.Wrapped, customer); err == nil {
		t.Error("the customer's key opens what the server stores")
	}
	// The server's key alone: what it gives is wrapped to the customer.
	server := g.sealKey(t)
	inner, err := envelope.TakeOff(server)
	if err != nil {
		t.Fatalf("the server's key does not open its own layer: %v", err)
	}
	if _, err := seal.OpenInner(inner, server); err == nil {
		t.Error("the server's key opens the data key")
	}
	if _, err := seal.DataKeyOf(inner); err == nil {
		t.Error("what is under the server's layer is a data key")
	}
	if _, err := seal.OpenInner(inner, customer); err != nil {
		t.Errorf("both keys do not open it: %v", err)
	}
}

// sealKey is the server's sealing key.
func (g *gate) sealKey(t testing.TB) (key seal.PrivateKey) {
	t.Helper()
	found := ""
	if err := g.DataFiles(func(path string, content []byte) error {
		if name := filepath.Base(path); strings.HasPrefix(name, "seal-") && strings.HasSuffix(name, ".key.pem") {
			found = string(content)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	key, err := seal.ParsePrivateKey([]byte(found))
	if err != nil {
		t.Fatalf("no sealing key in the data folder: %v", err)
	}
	return key
}
