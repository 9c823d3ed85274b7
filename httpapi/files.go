package httpapi

import (
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/gitstore"
)

// getFile answers GET and HEAD of a file's bytes, raw as the blob has them.
func (s *Server) getFile(q *request) error {
	v := q.query()
	rev, path := v.text("ref"), strings.TrimPrefix(v.need("path"), "/")
	ephemeral := v.flag("ephemeral")
	v.flag("ephemeral_base") // accepted; it says nothing here
	retained := v.flag(readableUntil)
	if v.err != nil {
		return v.err
	}
	at, err := q.repo.Resolve(q.ctx(), q.caller(), rev, ephemeral)
	if err != nil {
		return err
	}
	file, err := q.repo.File(q.ctx(), at.Commit, path)
	if err != nil {
		return err
	}
	last, err := q.repo.LastChange(q.ctx(), at.Commit, path)
	if err != nil {
		return err
	}
	e := &entity{
		etag: `"` + file.OID.String() + `"`, modified: last.Committer.When, size: file.Size,
	}
	h := q.x.Header()
	h["Content-Type"] = octetType
	h["Accept-Ranges"] = bytesUnit
	told := [...]string{e.etag, e.etag[1 : len(e.etag)-1], last.OID.String(), e.modified.UTC().Format(http.TimeFormat)}
	for i, name := range [...]string{"Etag", "X-Blob-Sha", "X-Last-Commit-Sha", "Last-Modified"} {
		h[name] = told[i : i+1 : i+1] // of one array: this is the way that is asked for most
	}
	h["Cache-Control"] = byName
	if isHexOID(rev) {
		h["Cache-Control"] = byOID
	}
	if retained {
		h["Cache-Control"] = byName // the file never changes; until when it is there does
		if err := q.tellRetention(at.Commit); err != nil {
			return err
		}
	}
	return q.sendFile(file, e.answer(q.r))
}

var (
	octetType = []string{"application/octet-stream"}
	bytesUnit = []string{"bytes"}
	// What a commit's id names never changes; who may read it does, so it is for
	// the asker's own cache.
	byOID  = []string{"private, max-age=31536000, immutable"}
	byName = []string{"private, no-cache"}
)

// sendFile carries out a verdict on the conditions of a request for file.
func (q *request) sendFile(file *gitstore.File, a fileAnswer) error {
	h := q.x.Header()
	switch a.status {
	case http.StatusNotModified:
		q.x.WriteHeader(a.status)
		return nil
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		return q.refuseFile(file, a.status)
	case http.StatusPartialContent:
		h.Set("Content-Range", a.contentRange(file.Size))
	}
	h["Content-Length"] = []string{strconv.FormatInt(a.length, 10)}
	if q.r.Method == http.MethodHead || a.length == 0 {
		q.x.WriteHeader(a.status)
		return nil
	}
	content, err := file.Open(q.ctx())
	if err != nil {
		return err
	}
	defer content.Close()
	if a.start > 0 {
		if _, err := content.Seek(a.start, io.SeekStart); err != nil {
			return err
		}
	}
	// What is in memory goes out in one write; files take the way through ReadFrom.
	all, ok := content.(io.WriterTo)
	whole := ok && file.Size <= inOneWrite && a.start+a.length == file.Size
	if whole {
		q.x.joined(q.r, a.length)
	}
	q.x.WriteHeader(a.status)
	if whole {
		_, err = all.WriteTo(q.x)
		return err
	}
	_, err = io.CopyN(q.x, content, a.length)
	return err
}

// inOneWrite is the largest file that may be written from memory as a whole.
const inOneWrite = 1 << 20

// refuseFile keeps the headers that tell of the file, and says why in JSON.
func (q *request) refuseFile(file *gitstore.File, status int) error {
	e := &requestError{kind: kindPrecondition, text: "a condition of the request does not hold"}
	if status == http.StatusRequestedRangeNotSatisfiable {
		q.x.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(file.Size, 10))
		e = &requestError{kind: kindRange, text: "range lies outside the file"}
	}
	p := problemOf(e)
	return q.x.json(p.status, p.body())
}

type treeEntryBody struct {
	Path string `json:"path"`
	Type string `json:"type"`
	Mode string `json:"mode"`
}

// listFiles answers with a page when cursor or limit is given, and else with
// everything at once.
func (s *Server) listFiles(q *request) error {
	v := q.query()
	rev, ephemeral := v.text("ref"), v.flag("ephemeral")
	list := gitstore.ListTree{Path: strings.TrimPrefix(v.text("path"), "/"), Recursive: true}
	if v.text("recursive") != "" {
		list.Recursive = v.flag("recursive")
	}
	cursor, retained := v.text("cursor"), v.flag(readableUntil)
	if cursor != "" || v.text("limit") != "" {
		list.Limit = v.limit(filesDefault, filesMost)
	}
	if v.err != nil {
		return v.err
	}
	var err error
	if list.After, err = pathOfCursor(cursor); err != nil {
		return err
	}
	at, err := q.repo.Resolve(q.ctx(), q.caller(), rev, ephemeral)
	if err != nil {
		return err
	}
	entries, more, err := q.repo.Tree(q.ctx(), at.Commit, list)
	if err == nil && retained {
		err = q.tellRetention(at.Commit)
	}
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, filesBodyOf(entries, at.Echo, more))
}

// cursorOfPath is the path itself, as clients expect. One that JSON cannot carry,
// since it is not UTF-8, is "/" and its bytes in base64: no path begins so.
func cursorOfPath(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return "/" + base64.RawURLEncoding.EncodeToString([]byte(path))
}

func pathOfCursor(cursor string) (string, error) {
	path := cursor
	if coded, ok := strings.CutPrefix(cursor, "/"); ok {
		raw, err := base64.RawURLEncoding.DecodeString(coded)
		if path = string(raw); err != nil || utf8.ValidString(path) {
			return "", gitstore.ErrBadCursor
		}
	}
	if strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) || strings.Contains(path, "//") {
		return "", gitstore.ErrBadCursor
	}
	return path, nil
}

type filesBody struct {
	Paths   []string        `json:"paths"`
	Entries []treeEntryBody `json:"entries"`
	Ref     string          `json:"ref"`
	pageBody
}

func filesBodyOf(entries []gitstore.TreeEntry, ref string, more bool) filesBody {
	body := filesBody{Paths: []string{}, Entries: make([]treeEntryBody, len(entries)), Ref: ref}
	for i, e := range entries {
		body.Entries[i] = treeEntryBody{Path: e.Path, Type: typeOf(e.Mode), Mode: modeText(e.Mode)}
		if e.Mode != gitstore.ModeTree && e.Mode != gitstore.ModeSubmodule {
			body.Paths = append(body.Paths, e.Path)
		}
	}
	if more && len(entries) > 0 {
		body.pageBody = pageOf(cursorOfPath(entries[len(entries)-1].Path))
	}
	return body
}

func typeOf(m gitstore.Mode) string {
	switch m {
	case gitstore.ModeTree:
		return "tree"
	case gitstore.ModeSymlink:
		return "symlink"
	case gitstore.ModeSubmodule:
		return "submodule"
	}
	return "blob"
}

// modeText is six octal digits.
func modeText(m gitstore.Mode) string {
	s := strconv.FormatUint(uint64(m), 8)
	return "000000"[:max(0, 6-len(s))] + s
}
