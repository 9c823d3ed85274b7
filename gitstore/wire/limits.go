package wire

// Limits bound what one request may make the server hold in memory. A field
// that is zero stands for its value in DefaultLimits.
type Limits struct {
	Bytes       int64 // pkt-lines of one request, without the pack
	Wants       int
	Haves       int
	Shallow     int // shallow lines
	DeepenNot   int
	RefPrefixes int // more than these and ls-refs answers as if none had been sent, as git does
	RefUpdates  int // commands of one push
	RefName     int // bytes of one ref name or prefix
	PushOptions int
}

// DefaultLimits let a mirror of 200,000 refs be fetched in one request and hold a request under about 64 MiB.
var DefaultLimits = Limits{
	Bytes:       32 << 20,
	Wants:       200_000,
	Haves:       400_000,
	Shallow:     100_000,
	DeepenNot:   1_000,
	RefPrefixes: 16_384,
	RefUpdates:  10_000,
	RefName:     8_192,
	PushOptions: 256,
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits
	if l.Bytes <= 0 {
		l.Bytes = d.Bytes
	}
	for _, f := range []struct{ have, def *int }{
		{&l.Wants, &d.Wants}, {&l.Haves, &d.Haves}, {&l.Shallow, &d.Shallow},
		{&l.DeepenNot, &d.DeepenNot}, {&l.RefPrefixes, &d.RefPrefixes},
		{&l.RefUpdates, &d.RefUpdates}, {&l.RefName, &d.RefName}, {&l.PushOptions, &d.PushOptions},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
	return l
}

// within reports a LimitError when one more entry would cross the bound.
func within(n, limit int, what string) error {
	if n >= limit {
		return &LimitError{What: what, Limit: int64(limit)}
	}
	return nil
}

func (l Limits) checkName(name string) error {
	if len(name) > l.RefName {
		return &LimitError{What: "bytes in a ref name", Limit: int64(l.RefName)}
	}
	return nil
}
