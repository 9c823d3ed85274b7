package snapshot

import "context"

// ReadManifest reads a snapshot's manifest as it is stored, whoever asks: ErrNoObject,
// *DamagedError, *FieldError.
func ReadManifest(ctx context.Context, repo Repo, commit OID) (Manifest, error) {
	m, _, err := manifestOf(ctx, repo, commit)
	return m, err
}
