package ledger

import "context"

// SpaceKeys are keys of one space.
type SpaceKeys struct {
	Space Space
	Keys  []string
}

// A SpacesReader is a Ledger that is far away, where asking twice takes twice as long.
type SpacesReader interface {
	// ReadSpaces is ReadKeys of several spaces that are asked at the same time. What it
	// gives is of one moment for each space, not for all.
	ReadSpaces(ctx context.Context, asked ...SpaceKeys) ([][][]byte, error)
}
