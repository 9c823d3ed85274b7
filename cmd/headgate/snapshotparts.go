package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/sessions/snapshot"
)

// imageParts are what there is to save at a path: one image, the files of a folder, or
// for "-" standard input. like says what a part is unless its file's name does.
func imageParts(path string, like client.SavePart) ([]client.SavePart, error) {
	if path == "-" {
		like.Size = -1
		like.Open = func() (io.ReadCloser, error) { return io.NopCloser(os.Stdin), nil }
		return []client.SavePart{like}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []client.SavePart{filePart(path, info, like)}, nil
	}
	entries, err := os.ReadDir(path) // in the order of names
	if err != nil {
		return nil, err
	}
	var parts []client.SavePart
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no file: a folder of images holds nothing else", file)
		}
		part := like
		part.Name = e.Name()
		if part.Kind == "" {
			part.Kind = kindOfFile(e.Name())
		}
		parts = append(parts, filePart(file, info, part))
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s holds no image", path)
	}
	return parts, nil
}

// filePart is a file, or a pipe that has a name, of which the size is not known.
func filePart(path string, info os.FileInfo, like client.SavePart) client.SavePart {
	like.Size = -1
	if info.Mode().IsRegular() {
		like.Size = info.Size()
	}
	like.Open = func() (io.ReadCloser, error) { return os.Open(path) }
	return like
}

// The ends of names by which a folder's images are told apart.
var kindsOfFiles = []struct {
	kind string
	ends []string
}{
	{snapshot.KindFiles, []string{".tar", ".tar.gz", ".tar.zst"}},
	{snapshot.KindNamespace, []string{".pkl", ".pickle", ".dill", ".json"}},
	{snapshot.KindDisk, []string{".img", ".raw", ".ext4", ".iso"}},
}

func kindOfFile(name string) string {
	for _, k := range kindsOfFiles {
		if slices.ContainsFunc(k.ends, func(end string) bool { return strings.HasSuffix(strings.ToLower(name), end) }) {
			return k.kind
		}
	}
	return snapshot.KindMemory
}
