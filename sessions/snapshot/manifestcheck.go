package snapshot

import "fmt"

// MaxLeaves is how many leaves all parts of a snapshot have together at most.
const MaxLeaves = 1 << 24

// check is a *FieldError for what no manifest of this version can say.
func (m Manifest) check() error {
	if err := CheckFormat(m.Format, m.Requires); err != nil {
		return err
	}
	for _, id := range []struct{ field, sha string }{{"parent_sha", m.Parent}, {"workspace_sha", m.Workspace}} {
		if _, err := ParseOID(id.sha); err != nil && id.sha != "" {
			return &FieldError{Field: id.field, Text: "is not a full object id"}
		}
	}
	if len(m.Parts) == 0 || len(m.Parts) > MaxParts {
		return &FieldError{Field: "parts", Text: fmt.Sprintf("are %d, must be 1 to %d", len(m.Parts), MaxParts)}
	}
	if err := m.checkParts(); err != nil {
		return err
	}
	if root, err := ParseHash(m.Root); err != nil || root != SnapshotRoot(m.Parts) {
		return &FieldError{Field: "image_sha256", Text: "is not the hash of its parts"}
	}
	if m.Zero < 0 || m.Zero > m.Size {
		return &FieldError{Field: "zero_bytes", Text: "is not between 0 and size_bytes"}
	}
	if m.Stored < 0 {
		return &FieldError{Field: "stored_bytes", Text: "is negative"}
	}
	return nil
}

func (m Manifest) checkParts() error {
	names := map[string]bool{}
	var leaves int
	var size int64
	for i, p := range m.Parts {
		if err := p.check(); err != nil {
			err.Field = fmt.Sprintf("parts[%d].%s", i, err.Field)
			return err
		}
		if names[p.Name] {
			return &FieldError{Field: fmt.Sprintf("parts[%d].name", i), Text: "is the name of another part"}
		}
		if p.FirstLeaf != leaves {
			return &FieldError{Field: fmt.Sprintf("parts[%d].first_leaf", i), Text: fmt.Sprintf("must be %d", leaves)}
		}
		names[p.Name] = true
		leaves += p.Leaves
		size += p.Size
		if leaves > MaxLeaves {
			return &FieldError{Field: "parts", Text: fmt.Sprintf("have more than %d leaves", MaxLeaves)}
		}
	}
	if size != m.Size {
		return &FieldError{Field: "size_bytes", Text: fmt.Sprintf("must be %d, the sum of its parts", size)}
	}
	return nil
}

// check is nil for a part as a manifest or a sparse stream may have it.
func (p Part) check() *FieldError {
	spec := PartSpec{Name: p.Name, Kind: p.Kind, Layout: p.Layout, ChunkBytes: p.ChunkBytes, Size: p.Size, Regions: p.Regions}
	if err := spec.check(); err != nil {
		return err
	}
	switch {
	case p.Size < 0:
		return &FieldError{Field: "size_bytes", Text: "is negative"}
	case p.FirstLeaf < 0 || p.FirstLeaf > MaxLeaves:
		return &FieldError{Field: "first_leaf", Text: fmt.Sprintf("is not between 0 and %d", MaxLeaves)}
	case p.Leaves < 0 || p.Leaves > MaxLeaves:
		return &FieldError{Field: "leaves", Text: fmt.Sprintf("is not between 0 and %d", MaxLeaves)}
	case p.Layout == Pages && p.Leaves != PageLeaves(p.Size, p.ChunkBytes):
		return &FieldError{Field: "leaves", Text: fmt.Sprintf("must be %d for the size", PageLeaves(p.Size, p.ChunkBytes))}
	case (p.Leaves == 0) != (p.Size == 0):
		return &FieldError{Field: "leaves", Text: "must be none for an empty image, and only for one"}
	}
	if _, err := ParseHash(p.Root); err != nil {
		return &FieldError{Field: "image_sha256", Text: "is not a SHA-256 hash"}
	}
	return nil
}
