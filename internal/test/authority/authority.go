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
	"time"
)

// Test is the test that fails when a certificate cannot be made: a [testing.TB], or a script.
type Test interface {
	Fatalf(format string, args ...any)
}

// Authority is a certificate authority. Make one with [New].
type Authority struct {
	t    Test
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a common name.
func New(t Test, name string) *Authority {
	a := &Authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	})
	return a
}

// sign completes and signs a certificate. That of the authority is its own.
func (a *Authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
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

func (a *Authority) check(err error) {
	if err != nil {
		a.t.Fatalf("certificates for a test: %v", err)
	}
}

// Issue returns a certificate with a common name, and its key, both in PEM form. Hosts are addresses or names; without any, the
// certificate is for 127.0.0.1.
func (a *Authority) Issue(name string, hosts ...string) (cert, key []byte) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1"}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	signed, own := a.sign(template)
	secret, err := x509.MarshalECPrivateKey(own)
	a.check(err)
	return inPEM("CERTIFICATE", signed.Raw), inPEM("EC PRIVATE KEY", secret)
}

// PEM returns the authority's own certificate in PEM form.
func (a *Authority) PEM() []byte { return inPEM("CERTIFICATE", a.cert.Raw) }

// Revoke returns the authority's list of revoked certificates, in PEM form: those in texts that Issue returned. The list is to
// be replaced at due.
func (a *Authority) Revoke(due time.Time, certs ...[]byte) []byte {
	list := &x509.RevocationList{Number: big.NewInt(time.Now().UnixNano()), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: due}
	for _, text := range certs {
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		a.check(err)
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	a.check(err)
	return inPEM("X509 CRL", der)
}

// Trust returns the configuration of a client that trusts the authority, and has these certificates.
func (a *Authority) Trust(own ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots, Certificates: own}
}

// Pair issues a certificate with a common name for a program on this machine.
func (a *Authority) Pair(name string) tls.Certificate {
	pair, err := tls.X509KeyPair(a.Issue(name))
	a.check(err)
	return pair
}

func inPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
