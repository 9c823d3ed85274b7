package refpolicy

// Where refs of each kind are stored.
const (
	BranchPrefix = "refs/heads/"
	TagPrefix    = "refs/tags/"
	NotesPrefix  = "refs/notes/"
	// NamespacePrefix covers everything that the main remote never shows.
	NamespacePrefix = "refs/namespaces/"
	// EphemeralPrefix is cut off the stored name to give what the ephemeral remote shows.
	EphemeralPrefix = "refs/namespaces/ephemeral/"
	// EphemeralBranchPrefix is where ephemeral branches are stored.
	EphemeralBranchPrefix = EphemeralPrefix + BranchPrefix
	// StatePrefix holds headgate's own refs; no remote shows or takes them.
	StatePrefix = "refs/namespaces/state/"
)

// A RefName is a full, stored ref name such as refs/heads/main. Values made by
// ParseRefName, Branch, EphemeralBranch and Tag are valid.
type RefName string
