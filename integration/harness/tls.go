package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// A Cert is a server certificate for localhost with the test CA that signed it.
type Cert struct {
	CAFile, CertFile, KeyFile string
	pool                      *x509.CertPool
}

// NewCert makes a CA and a certificate for localhost and 127.0.0.1 in dir.
func NewCert(dir string) (*Cert, error) {
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "headgate test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("make test CA: %w", err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("make test certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return writeCert(dir, caDER, leafDER, keyDER)
}

func writeCert(dir string, ca, leaf, key []byte) (*Cert, error) {
	c := &Cert{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "server.pem"),
		KeyFile: filepath.Join(dir, "server.key.pem"), pool: x509.NewCertPool(),
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{c.CAFile, "CERTIFICATE", ca}, {c.CertFile, "CERTIFICATE", leaf}, {c.KeyFile, "PRIVATE KEY", key}} {
		text := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := os.WriteFile(f.path, text, 0o600); err != nil {
			return nil, err
		}
		if f.path == c.CAFile {
			c.pool.AppendCertsFromPEM(text)
		}
	}
	return c, nil
}

// Client is an HTTP client, HTTP/2 included, that trusts the test CA.
func (c *Cert) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.pool}, ForceAttemptHTTP2: true,
	}}
}
