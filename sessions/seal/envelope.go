package seal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
)

// Version and Alg are what this package writes into an envelope.
const (
	Version = 1
	Alg     = "HPKE-X25519-SHA256-AES256GCM+AES256GCM-HMAC-SHA256"
)

// MaxEnvelope is the largest envelope, in bytes of JSON.
const MaxEnvelope = 4 << 10

// What each layer is wrapped for: one cannot be taken for the other.
const (
	captureInfo = "headgate seal 1 capture"
	serverInfo  = "headgate seal 1 server"
)

const (
	layerBytes = 32 + tagBytes // what a layer adds: HPKE's encapsulated key and the tag
	innerBytes = DataKeyBytes + layerBytes
	outerBytes = innerBytes + layerBytes
)

// An Envelope is what is stored beside sealed chunks.
type Envelope struct {
	Version      int    `json:"version"`
	Alg          string `json:"alg"`
	CaptureKeyID string `json:"capture_key_id"`
	ServerKeyID  string `json:"server_key_id"`
	Wrapped      []byte `json:"wrapped"`       // base64
	MAC          []byte `json:"mac,omitempty"` // base64; of the hash of what was saved
}

// NewEnvelope wraps a data key, first to the customer's key, then to the server's.
func NewEnvelope(k *DataKey, capture, server PublicKey) (Envelope, error) {
	inner, err := capture.wrap(captureInfo, k.secret[:])
	if err != nil {
		return Envelope{}, err
	}
	outer, err := server.wrap(serverInfo, inner)
	if err != nil {
		return Envelope{}, err
	}
	return Envelope{Version: Version, Alg: Alg, CaptureKeyID: capture.ID(), ServerKeyID: server.ID(), Wrapped: outer}, nil
}

// ParseEnvelope reads and checks an envelope as far as that needs no key: ErrBadEnvelope.
func ParseEnvelope(text []byte) (e Envelope, err error) {
	if len(text) > MaxEnvelope {
		return e, fmt.Errorf("%w: over %d bytes", ErrBadEnvelope, MaxEnvelope)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, fmt.Errorf("%w: %v", ErrBadEnvelope, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return e, fmt.Errorf("%w: something follows it", ErrBadEnvelope)
	}
	return e, e.check()
}

func (e Envelope) check() error {
	switch {
	case e.Version != Version:
		return fmt.Errorf("%w: version %d, this program knows %d", ErrBadEnvelope, e.Version, Version)
	case e.Alg != Alg:
		return fmt.Errorf("%w: alg is not %s", ErrBadEnvelope, Alg)
	case !isKeyID(e.CaptureKeyID):
		return fmt.Errorf("%w: capture_key_id", ErrBadEnvelope)
	case !isKeyID(e.ServerKeyID):
		return fmt.Errorf("%w: server_key_id", ErrBadEnvelope)
	case len(e.Wrapped) != outerBytes:
		return fmt.Errorf("%w: wrapped has %d bytes, not %d", ErrBadEnvelope, len(e.Wrapped), outerBytes)
	case e.MAC != nil && len(e.MAC) != sha256.Size:
		return fmt.Errorf("%w: mac has %d bytes, not %d", ErrBadEnvelope, len(e.MAC), sha256.Size)
	}
	return nil
}

func isKeyID(id string) bool {
	if len(id) != 16 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// TakeOff takes off the server's layer: what is left opens with the capture key alone.
// Errors: ErrUnknownKey for another server key, ErrWrongKey for a changed envelope.
func (e Envelope) TakeOff(server PrivateKey) (inner []byte, err error) {
	if server.Public().ID() != e.ServerKeyID {
		return nil, ErrUnknownKey
	}
	return server.unwrap(serverInfo, e.Wrapped)
}

// OpenInner gives the data key of what TakeOff has left: ErrWrongKey.
func OpenInner(inner []byte, capture PrivateKey) (*DataKey, error) {
	secret, err := capture.unwrap(captureInfo, inner)
	if err != nil {
		return nil, err
	}
	k, err := DataKeyOf(secret)
	if err != nil {
		return nil, ErrWrongKey
	}
	return k, nil
}

// Bind makes the envelope's mac over the hash of what was saved.
func (e *Envelope) Bind(k *DataKey, root [32]byte) { e.MAC = e.macOf(k, root) }

// Verify is ErrTampered unless the envelope was bound to root with this data key.
func (e Envelope) Verify(k *DataKey, root [32]byte) error {
	if !hmac.Equal(e.MAC, e.macOf(k, root)) {
		return ErrTampered
	}
	return nil
}

func (e Envelope) macOf(k *DataKey, root [32]byte) []byte {
	h := hmac.New(sha256.New, k.macKey)
	fmt.Fprintf(h, "%d\n%s\n%s\n", e.Version, e.Alg, e.CaptureKeyID)
	h.Write(root[:])
	return h.Sum(nil)
}
