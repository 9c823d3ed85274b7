package ledger

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	set := func(k, v string) []Set { return []Set{{Key: k, Value: []byte(v)}} }
	long := strings.Repeat("k", MaxKeyBytes)
	many := make([]Add, MaxBatchKeys)
	for i := range many {
		many[i] = Add{Key: fmt.Sprint(i), Delta: 1}
	}
	for name, tc := range map[string]struct {
		b    Batch
		want error
	}{
		"nothing":              {Batch{Space: "s"}, nil},
		"no space":             {Batch{}, ErrInvalidBatch},
		"longest space":        {Batch{Space: Space(long)}, nil},
		"long space":           {Batch{Space: Space(long + "k")}, ErrInvalidBatch},
		"longest id":           {Batch{Space: "s", ID: long}, nil},
		"long id":              {Batch{Space: "s", ID: long + "k"}, ErrInvalidBatch},
		"longest key":          {Batch{Space: "s", Sets: set(long, "")}, nil},
		"long key":             {Batch{Space: "s", Deletes: []string{long + "k"}}, ErrInvalidBatch},
		"before has no key":    {Batch{Space: "s", Checks: []Check{Before(time.Now())}}, nil},
		"checked and set":      {Batch{Space: "s", Checks: []Check{Absent("k")}, Sets: set("k", "")}, nil},
		"checked twice":        {Batch{Space: "s", Checks: []Check{Absent("k"), AbsentPrefix("k")}}, nil},
		"at most on an add":    {Batch{Space: "s", Checks: []Check{AtMost("k", 1)}, Adds: []Add{{Key: "k"}}}, nil},
		"at most on a delete":  {Batch{Space: "s", Checks: []Check{AtMost("k", 1)}, Deletes: []string{"k"}}, ErrInvalidBatch},
		"deleted and added":    {Batch{Space: "s", Deletes: []string{"k"}, Adds: []Add{{Key: "k"}}}, ErrInvalidBatch},
		"zero check":           {Batch{Space: "s", Checks: []Check{{}}}, ErrInvalidBatch},
		"most keys":            {Batch{Space: "s", Adds: many}, nil},
		"too many keys":        {Batch{Space: "s", Adds: many, Deletes: []string{"k"}}, ErrTooLarge},
		"most bytes":           {Batch{Space: "s", Sets: set("k", strings.Repeat("v", MaxBatchBytes-1))}, nil},
		"too many bytes":       {Batch{Space: "s", Sets: set("k", strings.Repeat("v", MaxBatchBytes))}, ErrTooLarge},
		"too many log bytes":   {Batch{Space: "s", Log: make([]byte, MaxBatchBytes+1)}, ErrTooLarge},
		"too many check bytes": {Batch{Space: "s", Checks: []Check{Equal("k", make([]byte, MaxBatchBytes))}}, ErrTooLarge},
	} {
		if err := tc.b.Validate(); !errors.Is(err, tc.want) {
			t.Errorf("%s: Validate() = %v, want %v", name, err, tc.want)
		}
	}
}

func TestCheckErrorTellsWhatStandsThere(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		err  CheckError
		want string
	}{
		{CheckError{Check: Equal("k", nil), Key: "k"}, `check equal "k": key is absent`},
		{CheckError{Check: Equal("k", nil), Key: "k", Present: []byte("secret")}, `check equal "k": another value stands there`},
		{CheckError{Check: Absent("k"), Key: "k", Present: []byte{}}, `check absent "k": key exists`},
		{CheckError{Check: AbsentPrefix("k/"), Key: "k/x", Present: []byte{}}, `check absent prefix "k/": "k/x" exists`},
		{CheckError{Check: AtMost("n", 3), Key: "n", Present: []byte("4")}, `check at most 3 in "n": would be 4`},
		{CheckError{Check: Before(at), Present: []byte("2031-01-01T00:00:00Z")}, `check before 2030-01-02T03:04:05Z: it is 2031-01-01T00:00:00Z`},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("Error() = %q, want %q", got, tc.want)
		}
	}
}
