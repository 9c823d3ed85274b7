package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/klauspost/compress/zlib"
)

// Git's numbers of the object types.
const (
	commitType = 1
	treeType   = 2
	blobType   = 3
)

var typeNames = [...]string{commitType: "commit", treeType: "tree", blobType: "blob"}

// An object is one of a commit's three.
type object struct {
	kind   byte
	oid    [20]byte
	data   []byte
	packed []byte // the stored form, where it is known beforehand
}

func newObject(kind byte, data []byte) object {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typeNames[kind], len(data))
	h.Write(data)
	o := object{kind: kind, data: data}
	h.Sum(o.oid[:0])
	return o
}

func (o object) hex() string { return hex.EncodeToString(o.oid[:]) }

var deflaters = sync.Pool{New: func() any {
	z, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant that exists
	}
	return z
}}

// stored is an object as the ledger keeps it: type, generation, size, zlib stream.
func (o object) stored() []byte {
	if o.packed != nil {
		return o.packed
	}
	head := []byte{o.kind, 1}
	b := bytes.NewBuffer(binary.AppendUvarint(head, uint64(len(o.data))))
	z := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(z)
	z.Reset(b)
	z.Write(o.data) // a bytes.Buffer takes everything
	z.Close()
	return b.Bytes()
}

type logChange struct {
	Ref  string `json:"ref"`
	Old  string `json:"old_sha"`
	New  string `json:"new_sha"`
	Kind string `json:"kind"`
}

type logEntry struct {
	Type  string `json:"type"`
	Actor struct {
		Org     string `json:"org"`
		Subject string `json:"sub"`
		KeyID   string `json:"kid"`
	} `json:"actor"`
	Changes []logChange `json:"changes"`
}

// batchOf is what headgate writes for a commit: the ref's record under a check of
// the old one, the index over tips, three objects, where the commit was born, and
// the log entry. The commit is the last of the objects.
func batchOf(ref, old string, before []byte, now time.Time, objects []object) (ledger.Batch, []byte) {
	commit := objects[len(objects)-1]
	record := recordOf(commit.oid, now)
	check := ledger.Absent("ref/" + ref)
	if before != nil {
		check = ledger.Equal("ref/"+ref, before)
	}
	entry := logEntry{Type: "ref.updated", Changes: []logChange{{ref, old, commit.hex(), "fast-forward"}}}
	entry.Actor.Org, entry.Actor.Subject, entry.Actor.KeyID = "bench", "bench", "0123456789abcdef"
	text, err := json.Marshal(entry)
	if err != nil {
		panic(err) // it holds nothing but strings
	}
	b := ledger.Batch{
		Space:   space,
		Checks:  []ledger.Check{ledger.Equal(genKey, []byte("1")), check},
		Deletes: []string{"tip/" + old + "/" + ref},
		Sets: []ledger.Set{
			{Key: "ref/" + ref, Value: record},
			{Key: "tip/" + commit.hex() + "/" + ref},
			{Key: "born/" + string(commit.oid[:]), Value: []byte(ref)},
		},
		Log: text,
	}
	for _, o := range objects {
		b.Sets = append(b.Sets, ledger.Set{Key: "o/" + string(o.oid[:]), Value: o.stored()})
	}
	return b, record
}

// recordOf is as long as headgate's record of a ref.
func recordOf(oid [20]byte, now time.Time) []byte {
	b := make([]byte, 0, 64)
	b = append(b, 1)
	b = append(b, oid[:]...)
	b = append(b, make([]byte, 20)...)
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()))
	return append(b, "bench"...)
}
