package sigcheck

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const (
	pgpBegin  = "-----BEGIN PGP SIGNATURE-----"
	pgpEnd    = "-----END PGP SIGNATURE-----"
	pgpKeyEnd = "-----END PGP PUBLIC KEY BLOCK-----"
	// The top bit of a 2048 bit modulus may be missing.
	minRSABits = 2047
)

// readPublicKeys reads one or more armored blocks.
func readPublicKeys(text []byte) (openpgp.EntityList, error) {
	var all openpgp.EntityList
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest, found := bytes.Cut(text, []byte(pgpKeyEnd))
		if found {
			block = text[:len(block)+len(pgpKeyEnd)]
		}
		entities, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(block))
		if err != nil {
			return nil, err
		}
		for _, e := range entities {
			if err := registrable(e); err != nil {
				return nil, err
			}
		}
		all, text = append(all, entities...), rest
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no key")
	}
	return all, nil
}

func registrable(e *openpgp.Entity) error {
	if e.PrivateKey != nil {
		return errors.New("it is a private key")
	}
	keys := []*packet.PublicKey{e.PrimaryKey}
	for _, sub := range e.Subkeys {
		keys = append(keys, sub.PublicKey)
	}
	for _, key := range keys {
		if key.PubKeyAlgo != packet.PubKeyAlgoRSA && key.PubKeyAlgo != packet.PubKeyAlgoRSASignOnly {
			continue
		}
		if bits, err := key.BitLength(); err != nil || bits < minRSABits {
			return fmt.Errorf("RSA key %s has %d bits, want 2048", key.KeyIdString(), bits)
		}
	}
	return nil
}

func (k *Keys) verifyOpenPGP(payload, armored []byte) error {
	body, err := pgpBody(armored)
	if err != nil {
		return err
	}
	config := &packet.Config{Time: k.now}
	_, entity, err := openpgp.VerifyDetachedSignature(k.pgp, bytes.NewReader(payload), bytes.NewReader(body), config)
	switch {
	case err == nil && entity != nil:
		return nil
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return fmt.Errorf("%w: no such OpenPGP key that may sign", ErrUntrusted)
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrKeyRevoked):
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return fmt.Errorf("%w: %w", ErrBadSignature, err)
}

// pgpBody gives the packet of the one signature in the armor, if it is not weak.
func pgpBody(armored []byte) ([]byte, error) {
	if err := oneBlock(armored, pgpEnd); err != nil {
		return nil, err
	}
	block, err := armor.Decode(bytes.NewReader(armored))
	if err != nil {
		return nil, fmt.Errorf("%w: read armor: %w", ErrBadSignature, err)
	}
	if block.Type != openpgp.SignatureType {
		return nil, fmt.Errorf("%w: armor of type %q", ErrBadSignature, block.Type)
	}
	body, err := io.ReadAll(block.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: read armor: %w", ErrBadSignature, err)
	}
	packets := packet.NewReader(bytes.NewReader(body))
	first, err := packets.Next()
	if err != nil {
		return nil, fmt.Errorf("%w: read packet: %w", ErrBadSignature, err)
	}
	sig, ok := first.(*packet.Signature)
	if !ok {
		return nil, fmt.Errorf("%w: a packet is no signature", ErrBadSignature)
	}
	if _, err := packets.Next(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more than one packet", ErrBadSignature)
	}
	return body, weak(sig)
}

func weak(sig *packet.Signature) error {
	switch sig.Hash {
	case crypto.MD5, crypto.SHA1, crypto.RIPEMD160:
		return fmt.Errorf("%w: digest %v is too weak", ErrBadSignature, sig.Hash)
	}
	switch sig.PubKeyAlgo {
	case packet.PubKeyAlgoDSA, packet.PubKeyAlgoElGamal:
		return fmt.Errorf("%w: key algorithm %d is too weak", ErrBadSignature, sig.PubKeyAlgo)
	}
	if sig.SigType != packet.SigTypeBinary && sig.SigType != packet.SigTypeText {
		return fmt.Errorf("%w: signature type %d is not over a document", ErrBadSignature, sig.SigType)
	}
	return nil
}
