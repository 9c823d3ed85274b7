//go:build !linux

package packs

// beginWriting does nothing where there is no such hint.
func beginWriting(string, int64, int64) {}

// beginWritingFile does nothing either.
func beginWritingFile(File, int64, int64) {}
