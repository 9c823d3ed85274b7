package wire

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// An emptyServer is an empty repository that answers clients with our messages
// alone and refuses every ref of a push.
type emptyServer struct{ t *testing.T }

func (s emptyServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	service := Service(req.URL.Query().Get("service"))
	var err error
	switch {
	case req.Method == http.MethodPost:
		err = s.post(w, req)
	case service == UploadPack && Version(req.Header.Get("Git-Protocol")) == 2:
		s.typed(w, service, "advertisement")
		err = (&CapabilityList{Capabilities: V2Capabilities("headgate/test")}).Encode(w)
	case service == UploadPack:
		s.typed(w, service, "advertisement")
		a := &Advertisement{Service: service, Banner: true, Version: Version(req.Header.Get("Git-Protocol")), Capabilities: UploadPackCapabilities("headgate/test")}
		err = a.Encode(w)
	default:
		s.typed(w, service, "advertisement")
		err = (&Advertisement{Service: service, Banner: true, Capabilities: ReceivePackCapabilities("headgate/test")}).Encode(w)
	}
	if err != nil {
		s.t.Errorf("answer %s %s: %v", req.Method, req.URL, err)
	}
}

func (s emptyServer) typed(w http.ResponseWriter, service Service, kind string) {
	w.Header().Set("Content-Type", "application/x-"+string(service)+"-"+kind)
}

func (s emptyServer) post(w http.ResponseWriter, req *http.Request) error {
	body := bufio.NewReader(req.Body)
	if strings.HasSuffix(req.URL.Path, string(UploadPack)) {
		s.typed(w, UploadPack, "result")
		q, err := ReadV2Request(body, Limits{})
		if err != nil {
			return err
		}
		if q.LsRefs == nil {
			return WriteError(w, "nothing to fetch")
		}
		return (&LsRefsResponse{Request: q.LsRefs, Head: &Head{Target: "refs/heads/trunk"}}).Encode(w)
	}
	s.typed(w, ReceivePack, "result")
	q, err := ReadReceiveRequest(body, Limits{})
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return err
	}
	answer := &ReceiveResponse{Messages: []string{"rule \x1b[1mmain\x1b[0m refuses it\nask for a session branch"}}
	for _, u := range q.Updates {
		answer.Report.Refs = append(answer.Report.Refs, RefReport{Ref: u.Ref, Reason: "denied by policy\nok refs/heads/x"})
	}
	return answer.Encode(w, q.ReportForm(), q.Sideband())
}

func TestGitClonesAnEmptyRepositoryInEveryVersion(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(emptyServer{t})
	t.Cleanup(server.Close)
	for _, version := range []string{"0", "1", "2"} {
		dir := t.TempDir()
		git(t, dir, "-c", "protocol.version="+version, "clone", "-q", server.URL+"/r.git", "r")
		if head := git(t, filepath.Join(dir, "r"), "symbolic-ref", "HEAD"); version == "2" && head != "refs/heads/trunk" {
			t.Errorf("v2 clone of an unborn trunk has HEAD %s", head)
		}
	}
}

func TestGitShowsARefusalAndItsMessage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(emptyServer{t})
	t.Cleanup(server.Close)
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main", ".")
	commit(t, dir, "f", 1)
	_, err := gitTry(t, dir, nil, nil, "push", server.URL+"/r.git", "main", "main:refs/heads/x")
	if err == nil {
		t.Fatal("a refused push succeeded")
	}
	for _, want := range []string{
		"remote: rule ?[1mmain?[0m refuses it", "remote: ask for a session branch",
		"[remote rejected] main -> main (denied by policy ok refs/heads/x)", "[remote rejected] main -> x (denied by policy",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("git push says\n%v\nwant %q in it", err, want)
		}
	}
}

func TestGitShowsAnErrorPacket(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(emptyServer{t})
	t.Cleanup(server.Close)
	dir := t.TempDir()
	git(t, dir, "init", "-q", ".")
	_, err := gitTry(t, dir, nil, nil, "fetch", server.URL+"/r.git", oidA)
	if err == nil || !strings.Contains(err.Error(), "remote error: nothing to fetch") {
		t.Errorf("git fetch says %v, want the text of the ERR packet", err)
	}
}
