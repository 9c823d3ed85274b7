package wire

import "strings"

// Names of capabilities, as in git's gitprotocol-capabilities.
const (
	capAtomic         = "atomic"
	capPushOptions    = "push-options"
	capQuiet          = "quiet"
	capReportStatus   = "report-status"
	capReportStatusV2 = "report-status-v2"
	capSideband       = "side-band"
	capSideband64k    = "side-band-64k"
)

// Capabilities are the words one side sent, in its order; a word is "name" or
// "name=value". Words that mean nothing to us are kept, as git ignores them.
type Capabilities []string

// How many words one side may send, and how many bytes they may have together.
// Git sends about twenty words; all of them have to fit into one line again.
const (
	maxCapabilities     = 256
	maxCapabilityLength = 16 << 10
)

// add splits list at its spaces and appends the words.
func (c *Capabilities) add(list string) error {
	*c = append(*c, strings.Fields(list)...)
	length := 0
	for _, word := range *c {
		length += len(word) + 1
	}
	if len(*c) > maxCapabilities {
		return &LimitError{What: "capabilities", Limit: maxCapabilities}
	}
	if length > maxCapabilityLength {
		return &LimitError{What: "bytes of capabilities", Limit: maxCapabilityLength}
	}
	return nil
}

// Has reports whether the word name, or name with a value, was sent.
func (c Capabilities) Has(name string) bool {
	_, ok := c.Value(name)
	return ok
}

// Value gives what stands after "name=" in the first such word; a bare name has the value "".
func (c Capabilities) Value(name string) (string, bool) {
	for _, word := range c {
		if key, value, _ := strings.Cut(word, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// Sideband gives the form the client asks for; side-band-64k wins over side-band.
func (c Capabilities) Sideband() SidebandForm {
	switch {
	case c.Has(capSideband64k):
		return Sideband64k
	case c.Has(capSideband):
		return SidebandSmall
	}
	return NoSideband
}

// checkFormat refuses an object format other than SHA-1.
func (c Capabilities) checkFormat() error {
	if format, ok := c.Value("object-format"); ok && format != "sha1" {
		return &UnsupportedError{Feature: "object format " + quote(format)}
	}
	return nil
}

// UploadPackCapabilities are what an upload-pack advertisement of v0 or v1
// offers. agent is a word without spaces, such as "headgate/1.0".
func UploadPackCapabilities(agent string) Capabilities {
	return Capabilities{
		"multi_ack", "thin-pack", capSideband, capSideband64k, "ofs-delta", "shallow", "deepen-since", "deepen-not",
		"deepen-relative", "no-progress", "include-tag", "multi_ack_detailed", "allow-tip-sha1-in-want",
		"allow-reachable-sha1-in-want", "no-done", "filter", "object-format=sha1", "agent=" + agent,
	}
}

// ReceivePackCapabilities are what a receive-pack advertisement offers.
func ReceivePackCapabilities(agent string) Capabilities {
	return Capabilities{
		capReportStatus, capReportStatusV2, "delete-refs", capSideband64k, capQuiet, capAtomic, "ofs-delta",
		capPushOptions, "object-format=sha1", "agent=" + agent,
	}
}
