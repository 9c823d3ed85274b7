package snapshot

import (
	"context"
	"encoding/binary"
)

// stageSlack is what may be staged for an upload beyond twice the cap, in bytes.
const stageSlack = 64 << 20

// fullStage is a *FullError once so much is staged for one upload that most of it cannot
// be needed: contents that others have taken the place of are staged, too.
func (k *Keeper) fullStage(stage Stage) error {
	if most := 2*k.Limits.Cap + stageSlack; k.Limits.Cap > 0 && stage.Bytes() > most {
		return &FullError{What: "staged bytes of one upload", Quota: most, Use: stage.Bytes()}
	}
	return nil
}

// heldToCap ends an upload the leaves of which need more than the cap: *OverCapError, and
// the session is told. What is staged and needed by none of them does not count.
func (k *Keeper) heldToCap(ctx context.Context, repo Repo, p *planned, stage Stage) error {
	if k.overCap(stage.Bytes()) == nil {
		return nil
	}
	needed, err := neededBytes(ctx, stage)
	if err != nil {
		return err
	}
	if err := k.overCap(needed); err != nil {
		return k.refuse(ctx, repo, p, err) // the reaper takes the stage away: others still write to it
	}
	return k.fullStage(stage)
}

// neededBytes adds up the staged blobs that the leaves that were told name, each once.
func neededBytes(ctx context.Context, stage Stage) (sum int64, err error) {
	seen := map[uint64]struct{}{}
	err = stage.Notes(ctx, func(_ string, data []byte) error {
		chunks, err := DecodeList(data)
		if err != nil {
			return err
		}
		for i, n := range stage.Sizes(chunks) {
			key := binary.BigEndian.Uint64(chunks[i].Hash[:])
			if _, twice := seen[key]; !twice {
				seen[key] = struct{}{}
				sum += int64(n)
			}
		}
		return nil
	})
	return sum, err
}
