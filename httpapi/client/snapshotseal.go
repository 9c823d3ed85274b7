package client

import (
	"context"
	"net/http"
)

// SealingKey is the server's public key for sealed saves, in PEM.
func (s *Snapshots) SealingKey(ctx context.Context) ([]byte, error) {
	var got struct {
		PublicKey string `json:"public_key"`
	}
	err := s.api.Do(ctx, http.MethodGet, "/api/sealing-key", nil, &got, 0)
	return []byte(got.PublicKey), err
}
