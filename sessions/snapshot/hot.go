package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/gitstore/ledger"
)

// maxHot is how many chunks a hot order names at most.
const maxHot = 1 << 17

// encodeHot writes a hot order, each chunk once:
//
//	order = *( varint of the difference to the chunk before )
func encodeHot(chunks []int) ([]byte, error) {
	if len(chunks) > maxHot {
		return nil, invalidf("hot order of %d chunks, at most %d", len(chunks), maxHot)
	}
	b := make([]byte, 0, 2*len(chunks))
	seen := make(map[int]struct{}, len(chunks))
	before := 0
	for _, c := range chunks {
		if c < 0 || c >= MaxImage/MinChunk {
			return nil, invalidf("there is no chunk %d", c)
		}
		if _, twice := seen[c]; twice {
			continue
		}
		seen[c] = struct{}{}
		b = binary.AppendVarint(b, int64(c-before))
		before = c
	}
	return b, nil
}

func decodeHot(b []byte) ([]int, error) {
	chunks := []int{}
	at := int64(0)
	for len(b) > 0 {
		d, n := binary.Varint(b)
		if n <= 0 || at+d < 0 || at+d >= MaxImage/MinChunk {
			return nil, errors.New("decode hot order: no chunk there")
		}
		at += d
		chunks, b = append(chunks, int(at)), b[n:]
	}
	return chunks, nil
}

// hotPart is the name of the part that a hot order is of, and holds its chunks to those
// that there are; an empty name is the first one's. ErrInvalid, *FieldError.
func hotPart(m Manifest, name string, chunks []int) (string, error) {
	at := slices.IndexFunc(m.Parts, func(p Part) bool { return p.Name == name || name == "" })
	if at < 0 {
		return "", &FieldError{Field: "part", Text: fmt.Sprintf("the snapshot has no part %q", name)}
	}
	p := m.Parts[at]
	most := int64(p.Leaves) * LeafChunks // how many a streamed one has only its lists tell
	if p.Layout == Pages {
		most = (p.Size + int64(p.ChunkBytes) - 1) / int64(p.ChunkBytes)
	}
	for _, c := range chunks {
		if int64(c) >= most {
			return "", &FieldError{Field: "chunks", Text: fmt.Sprintf("part %s has no chunk %d", p.Name, c)}
		}
	}
	return p.Name, nil
}

// isCheck reports whether a batch was refused by a check.
func isCheck(err error) bool {
	var failed *ledger.CheckError
	return errors.As(err, &failed)
}

// isDamage reports whether err says that what is stored is not what it should be.
func isDamage(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrNoObject) }
