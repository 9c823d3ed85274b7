package tokens

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// members reads data as exactly one JSON object and calls each once for every
// member, in order; an error of each ends it. encoding/json alone would take
// names in any case and the last of several equal ones, and so could read a
// token otherwise than its minter meant it. What is no such object is
// ErrMalformed; a doubled name is what doubled makes of it.
func members(data []byte, doubled func(name string) error, each func(name string, value json.RawMessage) error) error {
	if !utf8.Valid(data) {
		return ErrMalformed
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ErrMalformed
	}
	seen := make(map[string]bool)
	for dec.More() {
		t, err := dec.Token()
		name, isName := t.(string)
		var value json.RawMessage
		if err != nil || !isName || dec.Decode(&value) != nil {
			return ErrMalformed
		}
		if seen[name] {
			return doubled(name)
		}
		seen[name] = true
		if err := each(name, value); err != nil {
			return err
		}
	}
	if t, err := dec.Token(); err != nil || t != json.Delim('}') {
		return ErrMalformed
	}
	if _, err := dec.Token(); err != io.EOF {
		return ErrMalformed
	}
	return nil
}

// asString gives the string that value is.
func asString(value json.RawMessage) (s string, ok bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false // null would pass json.Unmarshal
	}
	return s, json.Unmarshal(value, &s) == nil
}

// asArray gives the elements of the array that value is.
func asArray(value json.RawMessage) (list []json.RawMessage, ok bool) {
	if len(value) == 0 || value[0] != '[' {
		return nil, false
	}
	return list, json.Unmarshal(value, &list) == nil
}

// asInteger gives the integer that value is; 1e9 and 5.0 are integers. What does
// not fit is given as the greatest or least int64.
func asInteger(value json.RawMessage) (n int64, ok bool) {
	if len(value) == 0 || (value[0] != '-' && (value[0] < '0' || value[0] > '9')) {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return n, true
	}
	// An overflowing number comes back as an infinity, which is its own floor.
	f, _ := strconv.ParseFloat(string(value), 64)
	switch {
	case f != math.Floor(f):
		return 0, false
	case f >= math.MaxInt64:
		return math.MaxInt64, true
	case f <= math.MinInt64:
		return math.MinInt64, true
	}
	return int64(f), true
}
