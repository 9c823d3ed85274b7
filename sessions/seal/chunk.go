package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// DataKeyBytes is the length of a data key.
	DataKeyBytes = 32
	// Overhead is how many bytes a sealed chunk is longer than its content at most.
	Overhead = nonceBytes + 1 + tagBytes

	nonceBytes = 12
	tagBytes   = 16
)

// The forms of what is encrypted.
const (
	formStored byte = iota
	formZstd
)

// A DataKey encrypts the chunks of one session. It is safe for concurrent use.
type DataKey struct {
	secret [DataKeyBytes]byte
	aead   cipher.AEAD
	macKey []byte
	nonces sync.Pool // of hash.Hash
	forms  sync.Pool // of *form
}

// A form holds what one call compresses with.
type form struct {
	enc   *zstd.Encoder
	plain []byte
}

// NewDataKey makes a data key.
func NewDataKey() (*DataKey, error) {
	var secret [DataKeyBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the program instead
	return DataKeyOf(secret[:])
}

// DataKeyOf is the data key of Secret's bytes: ErrBadKey for another length.
func DataKeyOf(secret []byte) (*DataKey, error) {
	if len(secret) != DataKeyBytes {
		return nil, ErrBadKey
	}
	var keys [3][]byte
	for i, info := range []string{"headgate seal 1 chunk", "headgate seal 1 nonce", "headgate seal 1 mac"} {
		key, err := hkdf.Key(sha256.New, secret, nil, info, 32)
		if err != nil {
			return nil, fmt.Errorf("derive key: %w", err)
		}
		keys[i] = key
	}
	block, err := aes.NewCipher(keys[0])
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	k := &DataKey{secret: [DataKeyBytes]byte(secret), aead: aead, macKey: keys[2]}
	k.nonces.New = func() any { return hmac.New(sha256.New, keys[1]) }
	k.forms.New = func() any {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			panic("seal: options of zstd: " + err.Error()) // they are constants
		}
		return &form{enc: enc}
	}
	return k, nil
}

// Secret is the key itself. Who has it reads everything that was sealed with it.
func (k *DataKey) Secret() []byte { return append([]byte(nil), k.secret[:]...) }

// Seal appends the sealed chunk of content to buf. Equal contents give equal chunks.
func (k *DataKey) Seal(buf, content []byte) []byte {
	f := k.forms.Get().(*form)
	defer k.forms.Put(f)
	f.plain = f.enc.EncodeAll(content, append(f.plain[:0], formZstd))
	if len(f.plain) > len(content) {
		f.plain = append(append(f.plain[:0], formStored), content...)
	}
	nonce := k.nonceOf(f.plain)
	return k.aead.Seal(append(buf, nonce[:]...), nonce[:], f.plain, nil)
}

func (k *DataKey) nonceOf(plain []byte) (nonce [nonceBytes]byte) {
	h := k.nonces.Get().(hash.Hash)
	defer k.nonces.Put(h)
	h.Reset()
	h.Write(plain)
	var sum [sha256.Size]byte
	copy(nonce[:], h.Sum(sum[:0]))
	return nonce
}

// An Opener opens sealed chunks; it is for one goroutine.
type Opener struct {
	k     *DataKey
	dec   *zstd.Decoder
	most  int
	plain []byte
}

// NewOpener makes an Opener for chunks whose contents are at most most bytes.
func (k *DataKey) NewOpener(most int) (*Opener, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(most, 1<<10))))
	if err != nil {
		return nil, fmt.Errorf("open sealed chunks: %w", err)
	}
	return &Opener{k: k, dec: dec, most: most}, nil
}

// Open appends the content of a sealed chunk to buf: ErrTampered if it is not one of
// this key's, or its content is too long.
func (o *Opener) Open(buf, chunk []byte) ([]byte, error) {
	if len(chunk) < Overhead || len(chunk) > o.most+Overhead {
		return buf, ErrTampered
	}
	plain, err := o.k.aead.Open(o.plain[:0], chunk[:nonceBytes], chunk[nonceBytes:], nil)
	if err != nil {
		return buf, ErrTampered
	}
	o.plain = plain
	switch form, body := plain[0], plain[1:]; form {
	case formStored:
		return append(buf, body...), nil
	case formZstd:
		out, err := o.dec.DecodeAll(body, buf)
		if err != nil || len(out)-len(buf) > o.most {
			return buf, ErrTampered
		}
		return out, nil
	}
	return buf, ErrTampered
}

// Close lets go of what the Opener holds.
func (o *Opener) Close() { o.dec.Close() }
