package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/seal"
)

func mustKey(t *testing.T) seal.PrivateKey {
	t.Helper()
	k, err := seal.GenerateKey()
	if err != nil {
		t.Fatalf("GenerateKey: %v", err)
	}
	return k
}

func mustDataKey(t *testing.T) *seal.DataKey {
	t.Helper()
	k, err := seal.NewDataKey()
	if err != nil {
		t.Fatalf("NewDataKey: %v", err)
	}
	return k
}

// PN-26, B-11: only both keys together open an envelope, in their order.
func TestB11_PN26_BothKeysAreNeeded(t *testing.T) {
	capture, server, other := mustKey(t), mustKey(t), mustKey(t)
	data := mustDataKey(t)
	e, err := seal.NewEnvelope(data, capture.Public(), server.Public())
	if err != nil {
		t.Fatalf("NewEnvelope: %v", err)
	}
	inner, err := e.TakeOff(server)
	if err != nil {
		t.Fatalf("TakeOff with the server's key: %v", err)
	}
	got, err := seal.OpenInner(inner, capture)
	if err != nil || !bytes.Equal(got.Secret(), data.Secret()) {
		t.Fatalf("OpenInner with both keys gave another key, err %v", err)
	}
	if _, err := seal.OpenInner(e.Wrapped, capture); !errors.Is(err, seal.ErrWrongKey) {
		t.Errorf("the customer's key alone: err %v, want ErrWrongKey", err)
	}
	if _, err := seal.OpenInner(inner, server); !errors.Is(err, seal.ErrWrongKey) {
		t.Errorf("the server's key alone: err %v, want ErrWrongKey", err)
	}
	if _, err := e.TakeOff(other); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("another server's key: err %v, want ErrUnknownKey", err)
	}
	if _, err := seal.OpenInner(inner, other); !errors.Is(err, seal.ErrWrongKey) {
		t.Errorf("another customer's key: err %v, want ErrWrongKey", err)
	}
}

func TestKeysSurviveTheirFiles(t *testing.T) {
	k := mustKey(t)
	private, err := k.PEM()
	if err != nil {
		t.Fatal(err)
	}
	public, err := k.Public().PEM()
	if err != nil {
		t.Fatal(err)
	}
	k2, err := seal.ParsePrivateKey(private)
	if err != nil || k2.Public().ID() != k.Public().ID() {
		t.Errorf("ParsePrivateKey: id %s, err %v, want id %s", k2.Public().ID(), err, k.Public().ID())
	}
	p2, err := seal.ParsePublicKey(public)
	if err != nil || p2.ID() != k.Public().ID() {
		t.Errorf("ParsePublicKey: err %v", err)
	}
	for name, text := range map[string][]byte{"nothing": nil, "no PEM": []byte("key"), "a private key": private} {
		if _, err := seal.ParsePublicKey(text); !errors.Is(err, seal.ErrBadKey) {
			t.Errorf("ParsePublicKey of %s: err %v, want ErrBadKey", name, err)
		}
	}
	if _, err := seal.ParsePrivateKey(public); !errors.Is(err, seal.ErrBadKey) {
		t.Errorf("ParsePrivateKey of a public key: err %v, want ErrBadKey", err)
	}
}

func TestEnvelopesAreReadStrictly(t *testing.T) {
	e, err := seal.NewEnvelope(mustDataKey(t), mustKey(t).Public(), mustKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	good, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seal.ParseEnvelope(good); err != nil {
		t.Fatalf("ParseEnvelope of a good one: %v", err)
	}
	for name, change := range map[string]func(map[string]any){
		"another version":      func(m map[string]any) { m["version"] = 2 },
		"another alg":          func(m map[string]any) { m["alg"] = "none" },
		"no capture key":       func(m map[string]any) { delete(m, "capture_key_id") },
		"a long server key id": func(m map[string]any) { m["server_key_id"] = "0123456789abcdef0" },
		"a short wrapped key":  func(m map[string]any) { m["wrapped"] = "AAAA" },
		"a short mac":          func(m map[string]any) { m["mac"] = "AAAA" },
		"an unknown field":     func(m map[string]any) { m["plain"] = "AAAA" },
	} {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := seal.ParseEnvelope(text); !errors.Is(err, seal.ErrBadEnvelope) {
			t.Errorf("ParseEnvelope with %s: err %v, want ErrBadEnvelope", name, err)
		}
	}
	if _, err := seal.ParseEnvelope(append(good, " {}"...)); !errors.Is(err, seal.ErrBadEnvelope) {
		t.Errorf("ParseEnvelope with something behind it: err %v, want ErrBadEnvelope", err)
	}
}

func TestEnvelopeIsBoundToWhatWasSaved(t *testing.T) {
	data := mustDataKey(t)
	e, err := seal.NewEnvelope(data, mustKey(t).Public(), mustKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	root := [32]byte{1, 2, 3}
	if err := e.Verify(data, root); !errors.Is(err, seal.ErrTampered) {
		t.Errorf("Verify of an envelope that is not bound: err %v, want ErrTampered", err)
	}
	e.Bind(data, root)
	if err := e.Verify(data, root); err != nil {
		t.Errorf("Verify: %v", err)
	}
	if err := e.Verify(data, [32]byte{1, 2, 4}); !errors.Is(err, seal.ErrTampered) {
		t.Errorf("Verify of another hash: err %v, want ErrTampered", err)
	}
	if err := e.Verify(mustDataKey(t), root); !errors.Is(err, seal.ErrTampered) {
		t.Errorf("Verify with another data key: err %v, want ErrTampered", err)
	}
}

func drawContent(t *rapid.T) []byte {
	unit := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "unit")
	return bytes.Repeat(unit, rapid.IntRange(1, 40).Draw(t, "times"))
}

// What comes back is what was sealed; equal contents are equal chunks under one key
// and different ones under two; no changed byte is taken.
func TestSealedChunks(t *testing.T) {
	data, other := mustDataKey(t), mustDataKey(t)
	rapid.Check(t, func(t *rapid.T) {
		content := drawContent(t)
		sealed := data.Seal(nil, content)
		if len(sealed) > len(content)+seal.Overhead {
			t.Fatalf("Seal of %d bytes gave %d, more than Overhead", len(content), len(sealed))
		}
		if !bytes.Equal(sealed, data.Seal(nil, content)) {
			t.Fatal("Seal of the same content gave another chunk")
		}
		if bytes.Equal(sealed, other.Seal(nil, content)) {
			t.Fatal("Seal with another key gave the same chunk")
		}
		o, err := data.NewOpener(len(content))
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		if got, err := o.Open([]byte("before"), sealed); err != nil || !bytes.Equal(got, append([]byte("before"), content...)) {
			t.Fatalf("Open: %d bytes, err %v, want the content", len(got), err)
		}
		bad := bytes.Clone(sealed)
		bad[rapid.IntRange(0, len(bad)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := o.Open(nil, bad); !errors.Is(err, seal.ErrTampered) {
			t.Fatalf("Open of a changed chunk: err %v, want ErrTampered", err)
		}
	})
}

// A chunk whose content is longer than it may be is refused, however well it shrinks.
func TestOpenedChunksAreBounded(t *testing.T) {
	data := mustDataKey(t)
	o, err := data.NewOpener(16 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := o.Open(nil, data.Seal(nil, make([]byte, 64<<20))); !errors.Is(err, seal.ErrTampered) {
		t.Errorf("Open of 64 MiB of zeros: err %v, want ErrTampered", err)
	}
}

func TestRingOpensWhatAnyOfItsKeysWrapped(t *testing.T) {
	old, newer, foreign, capture := mustKey(t), mustKey(t), mustKey(t), mustKey(t)
	ring := seal.NewRing(old, newer)
	if ring.Newest().ID() != newer.Public().ID() {
		t.Errorf("Newest is %s, want the last key", ring.Newest().ID())
	}
	for _, server := range []seal.PrivateKey{old, newer, foreign} {
		e, err := seal.NewEnvelope(mustDataKey(t), capture.Public(), server.Public())
		if err != nil {
			t.Fatal(err)
		}
		_, err = ring.TakeOff(e)
		if known := ring.Has(e.ServerKeyID); known != (err == nil) || !known && !errors.Is(err, seal.ErrUnknownKey) {
			t.Errorf("TakeOff: err %v, ring has the key: %t", err, known)
		}
	}
}

func FuzzParseEnvelope(f *testing.F) {
	f.Add([]byte(`{"version":1,"alg":"x","capture_key_id":"","server_key_id":"","wrapped":""}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"version":1}{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := seal.ParseEnvelope(text)
		if err != nil {
			if !errors.Is(err, seal.ErrBadEnvelope) {
				t.Fatalf("ParseEnvelope: err %v, want ErrBadEnvelope", err)
			}
			return
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := seal.ParseEnvelope(again); err != nil {
			t.Fatalf("ParseEnvelope of what it gave: %v", err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	secret := bytes.Repeat([]byte{7}, seal.DataKeyBytes)
	k, err := seal.DataKeyOf(secret)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(k.Seal(nil, []byte("content")))
	f.Add(k.Seal(nil, bytes.Repeat([]byte("content"), 100)))
	f.Add([]byte{})
	o, err := k.NewOpener(4 << 10)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, chunk []byte) {
		content, err := o.Open(nil, chunk)
		if err == nil && !bytes.Equal(k.Seal(nil, content), chunk) {
			t.Fatal("Open took a chunk that Seal does not make")
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	k, err := seal.NewDataKey()
	if err != nil {
		b.Fatal(err)
	}
	content := bytes.Repeat([]byte("some memory of a process\x00\x00\x00\x00\x01\x02"), 512)[:16<<10]
	var buf []byte
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		buf = k.Seal(buf[:0], content)
	}
}
