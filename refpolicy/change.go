package refpolicy

// Kind says what a change does to a ref.
type Kind uint8

// The kinds of change. Rewind is an update whose new value does not descend from the old one.
const (
	Create Kind = iota + 1
	FastForward
	Rewind
	Delete
)

func (k Kind) String() string {
	switch k {
	case Create:
		return "create"
	case FastForward:
		return "update"
	case Rewind:
		return "rewind"
	case Delete:
		return "delete"
	}
	return "unknown"
}
