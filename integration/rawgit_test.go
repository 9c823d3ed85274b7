package integration

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/integration/harness"
)

// A pushCommand is one ref change as it stands in a push.
type pushCommand struct{ old, new, ref string }

// pkt is one pkt-line.
func pkt(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// pushBody is a receive-pack request: commands, the first with the capabilities,
// then a pack if there is one.
func pushBody(capabilities, pack string, commands ...pushCommand) string {
	var b strings.Builder
	for i, c := range commands {
		line := c.old + " " + c.new + " " + c.ref
		if i == 0 {
			line += "\x00" + capabilities
		}
		b.WriteString(pkt(line))
	}
	return b.String() + "0000" + pack
}

func (r *repo) gitPath(ephemeral bool, service string) string {
	name := strings.ReplaceAll(r.name, " ", "%20")
	if ephemeral {
		name += "+ephemeral"
	}
	return "/" + name + ".git/" + service
}

// post sends a git request as it is.
func (r *repo) post(ephemeral bool, service, protocol, body string) harness.Answer {
	r.g.t.Helper()
	ask := harness.Ask{
		Method: "POST", Path: r.gitPath(ephemeral, service), Basic: r.write, Body: strings.NewReader(body),
		Header: map[string]string{"Content-Type": "application/x-" + service + "-request"},
	}
	if protocol != "" {
		ask.Header["Git-Protocol"] = protocol
	}
	return r.g.do(ask)
}

// rawPush sends commands with report-status and no side-band, and gives the report.
func (r *repo) rawPush(ephemeral bool, pack string, commands ...pushCommand) string {
	r.g.t.Helper()
	a := r.post(ephemeral, "git-receive-pack", "", pushBody("report-status", pack, commands...))
	if a.Status >= 500 {
		r.g.t.Errorf("push of %.200v = %s", commands, a)
	}
	return string(a.Body)
}

// pktLines takes a stream apart; a flush is "". What follows a malformed line is
// the last element.
func pktLines(b []byte) []string {
	var all []string
	for len(b) >= 4 {
		n, err := strconv.ParseUint(string(b[:4]), 16, 16)
		switch {
		case err != nil || int(n) > len(b):
			return append(all, string(b))
		case n < 4:
			all, b = append(all, ""), b[4:]
		default:
			all, b = append(all, string(b[4:n])), b[n:]
		}
	}
	return all
}

// unband joins band 1 of a side-band stream and gives band 2 apart.
func unband(b []byte) (data, progress []byte) {
	for _, line := range pktLines(b) {
		switch {
		case strings.HasPrefix(line, "\x01"):
			data = append(data, line[1:]...)
		case strings.HasPrefix(line, "\x02"):
			progress = append(progress, line[1:]...)
		}
	}
	return data, progress
}

// packOf cuts the pack out of an answer without side-band.
func packOf(b []byte) []byte {
	if i := bytes.Index(b, []byte("PACK")); i >= 0 {
		return b[i:]
	}
	return nil
}
