package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/sessions/seal"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// A sealState is the file with a session's data key. Who can read it reads what was
// sealed: it stays on the runner, and is made anew where it is lost.
type sealState struct {
	Secret   []byte        `json:"secret"`
	Envelope seal.Envelope `json:"envelope"` // without a mac: each save has its own
}

// seal has a save sealed to the customer's public key: with the data key of the saves
// before, so that what has not changed is stored once, or else with a new one.
func (c *snapshotSaveCmd) seal(ctx context.Context, s *client.Snapshots, state *saveState, o *client.SaveOptions) error {
	text, err := os.ReadFile(c.Seal)
	if err != nil {
		return err
	}
	capture, err := seal.ParsePublicKey(text)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.Seal, err)
	}
	serverText, err := s.SealingKey(ctx)
	if err != nil {
		return err
	}
	server, err := seal.ParsePublicKey(serverText)
	if err != nil {
		return fmt.Errorf("the server's sealing key: %w", err)
	}
	key, envelope, err := state.dataKey(capture, server, c.Fresh)
	if err != nil {
		return err
	}
	state.mark = "-" + envelope.CaptureKeyID
	o.Seal = key.Seal
	if o.Opening, err = json.Marshal(envelope); err != nil {
		return err
	}
	o.Envelope = func(root snapshot.Hash) (json.RawMessage, error) {
		bound := envelope
		bound.Bind(key, root)
		return json.Marshal(bound)
	}
	return nil
}

// dataKey is the session's data key with its envelope, made if there is none for these
// keys. A new one makes what is remembered of images worthless: it goes.
func (s *saveState) dataKey(capture, server seal.PublicKey, fresh bool) (*seal.DataKey, seal.Envelope, error) {
	path := s.base + "-" + capture.ID() + ".seal"
	if s.base != "" && !fresh {
		key, envelope, err := readSealState(path)
		if err == nil && envelope.CaptureKeyID == capture.ID() && envelope.ServerKeyID == server.ID() {
			return key, envelope, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, envelope, fmt.Errorf("read %s: %w", path, err)
		}
	}
	key, err := seal.NewDataKey()
	if err != nil {
		return nil, seal.Envelope{}, err
	}
	envelope, err := seal.NewEnvelope(key, capture, server)
	if err != nil || s.base == "" {
		return key, envelope, err
	}
	for _, old := range []string{path, s.base + "-" + capture.ID() + ".memo", s.base + "-" + capture.ID() + ".upload"} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, envelope, err
		}
	}
	text, err := json.Marshal(sealState{key.Secret(), envelope})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = tokens.WriteNewKeyFile(path, text)
	}
	return key, envelope, err
}

func readSealState(path string) (*seal.DataKey, seal.Envelope, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, seal.Envelope{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, seal.Envelope{}, errOpenSealKey
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, seal.Envelope{}, err
	}
	var state sealState
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, seal.Envelope{}, err
	}
	key, err := seal.DataKeyOf(state.Secret)
	return key, state.Envelope, err
}

var errKeyNeeded = errors.New("the snapshot is sealed, key needed: give the customer's private key with --capture-key")

// opener opens the chunks of a snapshot, if it is sealed: the server takes off its
// layer of the envelope, the customer's key the other.
func (c *snapshotRestoreCmd) opener(ctx context.Context, s *client.Snapshots, sha string) (opener, error) {
	got, err := s.Get(ctx, sha)
	if err != nil || !got.Sealed {
		return nil, err
	}
	if c.CaptureKey == "" {
		return nil, errKeyNeeded
	}
	private, err := readSealKey(c.CaptureKey)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.CaptureKey, err)
	}
	m, err := snapshot.DecodeManifest(got.Manifest)
	if err != nil {
		return nil, err
	}
	envelope, err := seal.ParseEnvelope(m.Envelope)
	if err != nil {
		return nil, err
	}
	inner, err := s.Key(ctx, sha)
	if err != nil {
		return nil, err
	}
	key, err := seal.OpenInner(inner, private)
	if err != nil {
		return nil, fmt.Errorf("%s, to which it was sealed with %s: %w", c.CaptureKey, envelope.CaptureKeyID, err)
	}
	root, err := snapshot.ParseHash(m.Root)
	if err != nil {
		return nil, err
	}
	if err := envelope.Verify(key, root); err != nil {
		return nil, fmt.Errorf("the snapshot is not what was sealed: %w", err)
	}
	return openChunks(key), nil
}

// openChunks opens the chunks of one data key, by many at once.
func openChunks(key *seal.DataKey) opener {
	idle := make(chan *seal.Opener, 64)
	return func(buf, chunk []byte) ([]byte, error) {
		var o *seal.Opener
		select {
		case o = <-idle:
		default:
			var err error
			if o, err = key.NewOpener(4 * snapshot.MaxChunk); err != nil {
				return nil, err
			}
		}
		out, err := o.Open(buf, chunk)
		select {
		case idle <- o:
		default:
			o.Close()
		}
		return out, err
	}
}
