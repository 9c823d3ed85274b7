package main

import (
	"errors"
	"fmt"
	"regexp"
)

// errBadOrg: the text cannot be an org's name.
var errBadOrg = errors.New("not an org name (letters, digits, dot, dash and underscore, a letter or digit first, at most 63)")

// An org's name stands in host names and in names of files.
var orgName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkOrg(name string) error {
	if !orgName.MatchString(name) {
		return fmt.Errorf("%q: %w", name, errBadOrg)
	}
	return nil
}
