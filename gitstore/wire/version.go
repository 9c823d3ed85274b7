package wire

import "strings"

// Version gives the protocol version, 0, 1 or 2, that a client asks for with
// params, the text of GIT_PROTOCOL or of the header Git-Protocol. The highest
// version that is known counts; without one it is 0.
//
//	params = param *(":" param)      param = "version=" number / anything
func Version(params string) int {
	version := 0
	for param := range strings.SplitSeq(params, ":") {
		switch param {
		case "version=1":
			version = max(version, 1)
		case "version=2":
			version = 2
		}
	}
	return version
}
