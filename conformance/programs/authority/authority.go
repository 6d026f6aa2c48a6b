package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority. Make one with [New]. It belongs to the goroutine of its test.
type Authority struct {
	// File is the path of the authority's own certificate.
	File string

	t       testing.TB
	dir     string
	key     *ecdsa.PrivateKey
	cert    *x509.Certificate
	trusted *x509.CertPool
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	dir, err := os.MkdirTemp("", "authority-") // the folders of a test are closed to other users
	a := &Authority{t: t, dir: dir, trusted: x509.NewCertPool(), File: filepath.Join(dir, "ca.pem")}
	a.check(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	a.check(os.Chmod(dir, 0o755))
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.trusted.AddCert(a.cert)
	a.write(a.File, "CERTIFICATE", a.cert.Raw)
	return a
}

func (a *Authority) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatalf("certificates for a test: %v", err)
	}
}

// sign completes and signs a certificate. That of the authority is its own.
func (a *Authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	now := time.Now()
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	a.check(err)
	cert, err := x509.ParseCertificate(der)
	a.check(err)
	return cert, key
}

func (a *Authority) issue(commonName string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
}

// Files issues a certificate with a common name, and returns the paths of it and of its key.
func (a *Authority) Files(commonName string) (cert, key string) {
	a.t.Helper()
	issued, own := a.issue(commonName)
	der, err := x509.MarshalECPrivateKey(own)
	a.check(err)
	cert, key = filepath.Join(a.dir, commonName+".pem"), filepath.Join(a.dir, commonName+".key")
	a.write(cert, "CERTIFICATE", issued.Raw)
	a.write(key, "EC PRIVATE KEY", der)
	return cert, key
}

// Client returns the configuration of a client that trusts the authority and shows a new certificate with a common name.
func (a *Authority) Client(commonName string) *tls.Config {
	a.t.Helper()
	cert, key := a.issue(commonName)
	return &tls.Config{RootCAs: a.trusted, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
}

// Trust returns the configuration of a client that trusts the authority and shows no certificate.
func (a *Authority) Trust() *tls.Config { return &tls.Config{RootCAs: a.trusted} }

func (a *Authority) write(path, kind string, der []byte) {
	a.t.Helper()
	a.check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644))
}
