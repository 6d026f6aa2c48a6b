package rightsmatrix

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

// authority is a certificate authority.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue completes and signs a certificate. That of the authority is its own.
func (a *authority) issue(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	wantOK(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	wantOK(a.t, err)
	cert, err := x509.ParseCertificate(der)
	wantOK(a.t, err)
	return cert, key
}

// leaf issues a certificate for a common name on this machine.
func (a *authority) leaf(name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	return a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// client returns the configuration of a client with a certificate for a common name.
func (a *authority) client(name string) *tls.Config {
	a.t.Helper()
	cert, key := a.leaf(name)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
}

// files writes a certificate, its key and the authority's certificate into a directory.
func (a *authority) files(dir, name string) (certFile, keyFile, caFile string) {
	a.t.Helper()
	cert, key := a.leaf(name)
	secret, err := x509.MarshalECPrivateKey(key)
	wantOK(a.t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		wantOK(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write(name+".pem", "CERTIFICATE", cert.Raw), write(name+".key", "EC PRIVATE KEY", secret), write("ca.pem", "CERTIFICATE", a.cert.Raw)
}
