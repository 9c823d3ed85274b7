package refpolicy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// MarshalJSON gives the form of the refs claim: [pattern, [op, ...]].
func (r Rule) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.Pattern, append([]Op{}, r.Ops...)})
}

// UnmarshalJSON takes [pattern, [op, ...]] and nothing else; else it is
// ErrBadClaim. The pattern is not looked at; New does that.
func (r *Rule) UnmarshalJSON(raw []byte) error {
	pair, err := list(raw)
	if err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("%w: a rule has %d elements, want [pattern, [op, ...]]", ErrBadClaim, len(pair))
	}
	pattern, err := text(pair[0])
	if err != nil {
		return err
	}
	ops, err := ParseOps(pair[1])
	if err != nil {
		return err
	}
	*r = Rule{Pattern: pattern, Ops: ops}
	return nil
}

// ParseRules reads the JSON of a refs claim, an array of [pattern, [op, ...]]
// pairs. Anything else, null included, is ErrBadClaim: a restriction that was
// meant and not understood must not be skipped.
func ParseRules(raw []byte) ([]Rule, error) {
	items, err := list(raw)
	if err != nil {
		return nil, err
	}
	rules := make([]Rule, len(items))
	for i, item := range items {
		if err := rules[i].UnmarshalJSON(item); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i, err)
		}
	}
	return rules, nil
}

// ParseOps reads the JSON of an ops claim, an array of strings. Anything else,
// null included, is ErrBadClaim.
func ParseOps(raw []byte) ([]Op, error) {
	items, err := list(raw)
	if err != nil {
		return nil, err
	}
	ops := make([]Op, len(items))
	for i, item := range items {
		op, err := text(item)
		if err != nil {
			return nil, err
		}
		ops[i] = Op(op)
	}
	return ops, nil
}

// list refuses null, which encoding/json would take for an empty list, and bytes
// that are not UTF-8, which it would change.
func list(raw []byte) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrBadClaim)
	}
	if err := json.Unmarshal(raw, &items); err != nil || items == nil {
		return nil, fmt.Errorf("%w: not an array", ErrBadClaim)
	}
	return items, nil
}

func text(raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return "", fmt.Errorf("%w: not a string", ErrBadClaim)
	}
	return s, nil
}
