package wire

import "testing"

func TestCase1_7_VersionAskedFor(t *testing.T) {
	for params, want := range map[string]int{
		"": 0, "version=0": 0, "version=1": 1, "version=2": 2, "version=9": 0, "version=": 0, "version=22": 0, "Version=2": 0,
		"version=1:version=2": 2, "version=2:version=1": 2, "version=2:version=9": 2, "other:version=2:x=y": 2, "version= 2": 0,
	} {
		if got := Version(params); got != want {
			t.Errorf("Version(%q) = %d, want %d", params, got, want)
		}
	}
}
