package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// MaxManifest is how many bytes manifest.json has at most.
const MaxManifest = 1 << 20

// features are what Requires may name besides fields of the manifest.
var features = []string{"sealed"}

// A field is a field of manifest.json and where its value goes.
type field struct {
	name string
	into any
}

// fields are all that this version knows, in the order in which they are written.
func (m *Manifest) fields() []field {
	return []field{
		{"format", &m.Format},
		{"requires", &m.Requires},
		{"session_id", &m.Session},
		{"name", &m.Name},
		{"parent_sha", &m.Parent},
		{"workspace_sha", &m.Workspace},
		{"created_at", &m.CreatedAt},
		{"machine", &m.Machine},
		{"boundary", &m.Boundary},
		{"excluded", &m.Excluded},
		{"quiescence", &m.Quiet},
		{"envelope", &m.Envelope},
		{"parts", &m.Parts},
		{"image_sha256", &m.Root},
		{"size_bytes", &m.Size},
		{"zero_bytes", &m.Zero},
		{"stored_bytes", &m.Stored},
	}
}

// KnownField reports whether this version gives a meaning to a field of manifest.json:
// Extra cannot have one of that name.
func KnownField(name string) bool {
	return slices.ContainsFunc((&Manifest{}).fields(), func(f field) bool { return f.name == name })
}

// CheckFormat is a *FieldError for a version, or a feature a reader must know, that this
// package cannot take; of a feature the field is its name.
func CheckFormat(version int, requires []string) error {
	if version != FormatVersion {
		return &FieldError{Field: "format", Text: fmt.Sprintf("version %d is not known, only %d is", version, FormatVersion)}
	}
	for _, name := range requires {
		if !slices.Contains(features, name) && !KnownField(name) {
			return &FieldError{Field: name, Text: "is required and not known to this version"}
		}
	}
	return nil
}

// Encode writes a manifest: fields in the order of the type, then those of Extra by name.
// Equal manifests are equal bytes. *FieldError for what DecodeManifest would refuse.
func (m Manifest) Encode() ([]byte, error) {
	m.CreatedAt = m.CreatedAt.UTC()
	if err := m.check(); err != nil {
		return nil, err
	}
	data, err := encodeJSON(m)
	if err != nil {
		return nil, err
	}
	data = data[:len(data)-1] // without the closing brace
	for _, name := range slices.Sorted(maps.Keys(m.Extra)) {
		if KnownField(name) {
			return nil, &FieldError{Field: name, Text: "is a field of its own"}
		}
		key, err := encodeJSON(name)
		if err != nil {
			return nil, err
		}
		value, err := encodeJSON(m.Extra[name])
		if err != nil {
			return nil, &FieldError{Field: name, Text: "is not JSON"}
		}
		data = append(append(append(append(data, ','), key...), ':'), value...)
	}
	data = append(data, '}', '\n')
	if len(data) > MaxManifest {
		return nil, invalidf("manifest of %d bytes is over %d", len(data), MaxManifest)
	}
	return data, nil
}

// encodeJSON is JSON without white space, and with <, > and & as they are.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeManifest reads one: *FieldError for a version, a requirement or a value this
// package cannot take, ErrInvalid for what is no manifest at all.
func DecodeManifest(data []byte) (Manifest, error) {
	if len(data) > MaxManifest {
		return Manifest{}, invalidf("manifest of %d bytes is over %d", len(data), MaxManifest)
	}
	values, err := objectOf(data)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	// The version and what it requires come first: the rest may mean something else.
	known := m.fields()
	for _, f := range known[:2] {
		if err := f.take(values); err != nil {
			return Manifest{}, err
		}
	}
	if err := CheckFormat(m.Format, m.Requires); err != nil {
		return Manifest{}, err
	}
	for _, f := range known[2:] {
		if err := f.take(values); err != nil {
			return Manifest{}, err
		}
	}
	if len(values) > 0 {
		m.Extra = values
	}
	m.CreatedAt = m.CreatedAt.UTC()
	return m, m.check()
}

// objectOf reads one JSON object, and nothing behind it, as compact values by name.
func objectOf(data []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, invalidf("manifest is not a JSON object")
	}
	values := map[string]json.RawMessage{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, invalidf("manifest: %v", err)
		}
		name, _ := t.(string) // a key is one, or Token has failed
		if _, twice := values[name]; twice {
			return nil, &FieldError{Field: name, Text: "is given twice"}
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, invalidf("manifest: %s: %v", name, err)
		}
		value, err := encodeJSON(raw)
		if err != nil {
			return nil, invalidf("manifest: %s: %v", name, err)
		}
		values[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, invalidf("manifest: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalidf("manifest: more follows its end")
	}
	return values, nil
}

// take moves the field's value out of values.
func (f field) take(values map[string]json.RawMessage) error {
	raw, given := values[f.name]
	if !given {
		return nil
	}
	delete(values, f.name)
	if string(raw) == "null" {
		return &FieldError{Field: f.name, Text: "is null"}
	}
	err := json.Unmarshal(raw, f.into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "":
		return &FieldError{Field: f.name + "." + wrong.Field, Text: "cannot be a " + wrong.Value}
	case errors.As(err, &wrong):
		return &FieldError{Field: f.name, Text: "cannot be a " + wrong.Value}
	}
	return &FieldError{Field: f.name, Text: err.Error()}
}
