package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// indexes holds the keys that are kept for finding refs, commits and pins against the
// records they belong to. Both sides of a disagreement are read again from one moment
// before it is told, since refs move meanwhile.
func (f *fsck) indexes(ctx context.Context) error {
	for prefix, look := range map[string]func(context.Context, ledger.Item) error{
		refKeys: f.ref, tipKeys: f.tip, createdKeys: f.created, bornKeys: f.born, pinKeys: f.pin, pinnedKeys: f.pinned,
	} {
		err := f.r.eachPage(ctx, prefix, func(items []ledger.Item) error {
			for _, it := range items {
				if err := look(ctx, it); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// now reads keys from one moment.
func (f *fsck) now(ctx context.Context, keys ...string) ([][]byte, error) {
	v, err := f.r.ledger.Read(ctx, f.r.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.GetMany(ctx, keys...)
}

// ref wants a ref's name to be one, its tip and place of creation to be indexed, and
// its peeled value to be true.
func (f *fsck) ref(ctx context.Context, it ledger.Item) error {
	name := refpolicy.RefName(strings.TrimPrefix(it.Key, refKeys))
	rec, err := decodeRefRecord(it.Value)
	if err != nil {
		return nil // history has told it
	}
	if _, err := refpolicy.ParseRefName(string(name)); err != nil {
		f.find(FindRef, string(name), "%v", err)
		return nil
	}
	keys := []string{it.Key, tipKey(rec.oid, name)}
	if key, ok := createdKey(name, rec.created); ok {
		keys = append(keys, key)
	}
	got, err := f.now(ctx, keys...)
	if err != nil {
		return err
	}
	if string(got[0]) != string(it.Value) {
		return nil // it moved: then its batch has moved all of it
	}
	for n, value := range got[1:] {
		if value == nil {
			f.find(FindIndex, string(name), "%s is missing", keys[n+1])
		}
	}
	peeled, _, err := graph{f.r, noFresh}.peel(ctx, rec.oid)
	if err != nil {
		return nil // history has told what is missing
	}
	if peeled == rec.oid {
		peeled = refpolicy.ZeroOID
	}
	if peeled != rec.peeled {
		f.find(FindRef, string(name), "peeled to %s, on record is %s", peeled, rec.peeled)
	}
	return nil
}

// tip wants the ref to be where the index says.
func (f *fsck) tip(ctx context.Context, it ledger.Item) error {
	hex, name, _ := strings.Cut(strings.TrimPrefix(it.Key, tipKeys), "/")
	return f.backed(ctx, it.Key, refKeys+name, func(raw []byte) error {
		rec, err := decodeRefRecord(raw)
		if err == nil && rec.oid.String() != hex {
			err = fmt.Errorf("the ref is at %s", rec.oid)
		}
		return err
	})
}

func (f *fsck) created(ctx context.Context, it ledger.Item) error {
	_, place, _ := strings.Cut(strings.TrimPrefix(it.Key, createdKeys), "/")
	_, name, _ := strings.Cut(place, "/")
	return f.backed(ctx, it.Key, refKeys+name, func(raw []byte) error {
		rec, err := decodeRefRecord(raw)
		if key, ok := createdKey(refpolicy.RefName(name), rec.created); err == nil && (!ok || key != it.Key) {
			err = fmt.Errorf("the ref was created at %s", rec.created)
		}
		return err
	})
}

// backed wants what stands under an index's key to be borne out by a record.
func (f *fsck) backed(ctx context.Context, key, record string, fits func(raw []byte) error) error {
	got, err := f.now(ctx, key, record)
	switch {
	case err != nil:
		return err
	case got[0] == nil: // gone by now
	case got[1] == nil:
		f.find(FindIndex, key, "%s is missing", record)
	default:
		if err := fits(got[1]); err != nil {
			f.find(FindIndex, key, "%v", err)
		}
	}
	return nil
}

// born wants a ref's name and, if the object is there, a commit. The ref may be gone,
// and a crash may leave the key of a commit that has been pruned.
func (f *fsck) born(ctx context.Context, it ledger.Item) error {
	var oid refpolicy.OID
	copy(oid[:], strings.TrimPrefix(it.Key, bornKeys))
	if _, err := refpolicy.ParseRefName(string(it.Value)); err != nil {
		f.find(FindIndex, "born/"+oid.String(), "%v", err)
		return nil
	}
	t, _, err := f.r.header(ctx, oid)
	if err == nil && t != CommitObject {
		f.find(FindIndex, "born/"+oid.String(), "is a %s", t)
	}
	return nil
}

func (f *fsck) pin(ctx context.Context, it ledger.Item) error {
	id := strings.TrimPrefix(it.Key, pinKeys)
	rec, err := decodePin(it.Value)
	if err != nil {
		f.find(FindPin, id, "%v", err)
		return nil
	}
	got, err := f.now(ctx, it.Key, pinnedKey(rec.OID, id))
	if err != nil {
		return err
	}
	same := string(got[0]) == string(it.Value)
	switch {
	case same && rec.EndedIn == 0 && (got[1] == nil || string(got[1]) != string(pinEnd(rec.ExpiresAt))):
		f.find(FindIndex, pinnedKey(rec.OID, id), "does not say when the pin ends")
	case same && rec.EndedIn != 0 && got[1] != nil:
		f.find(FindIndex, pinnedKey(rec.OID, id), "the pin was deleted")
	}
	return nil
}

func (f *fsck) pinned(ctx context.Context, it ledger.Item) error {
	hex, id, _ := strings.Cut(strings.TrimPrefix(it.Key, pinnedKeys), "/")
	return f.backed(ctx, it.Key, pinKey(id), func(raw []byte) error {
		rec, err := decodePin(raw)
		if err == nil && rec.OID.String() != hex {
			err = errors.New("the pin holds " + rec.OID.String())
		}
		return err
	})
}
