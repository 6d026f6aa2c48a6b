package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// issuer is an authority whose lists a test can damage.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T, name string, parent *issuer) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(name))), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	signer := &issuer{t, template, key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{t, cert, key}
}

// list returns a list in DER form.
func (i *issuer) list(change func(*x509.RevocationList), entries ...x509.RevocationListEntry) []byte {
	i.t.Helper()
	template := &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour), RevokedCertificateEntries: entries,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, i.cert, i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return der
}

func entry(number int64) x509.RevocationListEntry {
	return x509.RevocationListEntry{SerialNumber: big.NewInt(number), RevocationTime: time.Now()}
}

func inPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// listFile writes a file of lists.
func listFile(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func leaf(of *issuer, number int64) *x509.Certificate {
	return &x509.Certificate{RawIssuer: of.cert.RawSubject, SerialNumber: big.NewInt(number)}
}

func TestListsRevokeCertificatesOfTheirIssuers(t *testing.T) {
	root, other := newIssuer(t, "root", nil), newIssuer(t, "another", nil)
	middle := newIssuer(t, "in the middle", root)
	authorities := []*x509.Certificate{root.cert, other.cert}
	removed := entry(8)
	removed.ReasonCode = removedFromList
	text := append(inPEM(root.list(nil, entry(1), entry(middle.cert.SerialNumber.Int64()), removed)), inPEM(other.list(nil, entry(2)))...)
	all, err := readRevoked(listFile(t, text), authorities)
	if err != nil {
		t.Fatal(err)
	}
	type chains = [][]*x509.Certificate
	below := []*x509.Certificate{leaf(middle, 1), middle.cert, root.cert}
	for what, test := range map[string]struct {
		chains  chains
		refused bool
	}{
		"revoked":                              {chains{{leaf(root, 1), root.cert}}, true},
		"not revoked":                          {chains{{leaf(root, 3), root.cert}}, false},
		"removed from the list":                {chains{{leaf(root, 8), root.cert}}, false},
		"number in another list":               {chains{{leaf(root, 2), root.cert}}, false},
		"revoked by the other":                 {chains{{leaf(other, 2), other.cert}}, true},
		"below a revoked authority":            {chains{below}, true},
		"also below another":                   {chains{below, {leaf(middle, 1), other.cert}}, false},
		"each chain has one":                   {chains{below, {leaf(other, 2), other.cert}}, true},
		"no chain (nothing that is to verify)": {nil, false},
	} {
		if got := all.refuses(test.chains) != nil; got != test.refused {
			t.Errorf("%s: refused %v", what, got)
		}
	}
	alone, err := readRevoked(listFile(t, root.list(nil, entry(1))), authorities)
	if err != nil || alone.refuses(chains{{leaf(root, 1)}}) == nil {
		t.Errorf("a list in DER form: %v", err)
	}
}

// A list that does not say all, or that is damaged anywhere, is refused as a whole.
func TestUnusableListsAreRefused(t *testing.T) {
	root, other := newIssuer(t, "root", nil), newIssuer(t, "root", nil)
	good := root.list(nil, entry(1))
	critical := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}
	indirect := entry(1)
	indirect.ExtraExtensions = []pkix.Extension{critical}
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	for what, text := range map[string][]byte{
		"empty":                       nil,
		"text":                        []byte("no list"),
		"certificate":                 pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.cert.Raw}),
		"another key":                 inPEM(other.list(nil, entry(1))),
		"broken signature":            inPEM(broken),
		"second list broken":          append(inPEM(good), inPEM(broken)...),
		"second list cut":             append(inPEM(good), inPEM(good)[:100]...),
		"text after it":               append(inPEM(good), "text"...),
		"only the changes":            inPEM(root.list(func(l *x509.RevocationList) { l.ExtraExtensions = []pkix.Extension{critical} })),
		"entries of another's issuer": inPEM(root.list(nil, indirect)),
	} {
		if all, err := readRevoked(listFile(t, text), []*x509.Certificate{root.cert}); err == nil {
			t.Errorf("%s: accepted, with %d entries", what, len(all.serials))
		}
	}
	if _, err := readRevoked(filepath.Join(t.TempDir(), "absent"), nil); err == nil {
		t.Error("an absent file was accepted")
	}
	large := listFile(t, inPEM(good))
	if err := os.Truncate(large, maxListBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readRevoked(large, []*x509.Certificate{root.cert}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file that is too large: %v", err)
	}
}

// revoking returns a source with a list of revoked certificates, and its authority.
func revoking(t *testing.T, log *bytes.Buffer) (*Source, *authority.Authority, Files) {
	t.Helper()
	ca, f := authority.New(t, "ca"), some(t)
	f.CRL = filepath.Join(t.TempDir(), "list")
	put(t, f.CA, string(ca.PEM()))
	put(t, f.CRL, string(ca.Revoke(time.Now().Add(time.Hour))))
	s, err := Open(f, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.LookEvery(0)
	return s, ca, f
}

// admitted returns a connection after a handshake in which the other side has shown a certificate.
func admitted(t *testing.T, s *Source, cert []byte) (net.Conn, error) {
	t.Helper()
	block, _ := pem.Decode(cert)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	one, other := net.Pipe()
	t.Cleanup(func() { other.Close() })
	conn := s.Track(one)
	return conn, s.Verifier(conn)(tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{parsed}}})
}

func closed(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now())
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !os.IsTimeout(err)
}

// A changed list closes the connections that it concerns, and the source forgets all that are closed.
func TestChangedListClosesOpenConnections(t *testing.T) {
	log := new(bytes.Buffer)
	s, ca, f := revoking(t, log)
	stolen, _ := ca.Issue("alice")
	good, _ := ca.Issue("alice")
	first, err := admitted(t, s, stolen)
	if err != nil {
		t.Fatal(err)
	}
	second, err := admitted(t, s, good)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := admitted(t, s, good)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		gone.Close()
	}
	if len(s.open) != 2 {
		t.Errorf("%d connections are open, want 2", len(s.open))
	}
	put(t, f.CRL, string(ca.Revoke(time.Now().Add(time.Hour), stolen)))
	s.Current()
	if !closed(first) || closed(second) || len(s.open) != 1 {
		t.Errorf("closed: %v, %v; %d are open", closed(first), closed(second), len(s.open))
	}
	late, err := admitted(t, s, stolen)
	if err == nil || !strings.Contains(err.Error(), "is revoked") {
		t.Errorf("a revoked certificate: %v", err)
	}
	late.Close()
	if _, err := admitted(t, s, stolen); err == nil || strings.Count(log.String(), "a revoked certificate was refused") != 1 {
		t.Errorf("the log has each refusal, or none: %s", log)
	}

	// The other files change without the list, and the list without the others.
	write(t, f, "second")
	wantName(t, s, "second")
	put(t, f.CRL, "damaged")
	write(t, f, "third")
	wantName(t, s, "third")
	if _, err := admitted(t, s, stolen); err == nil {
		t.Error("a damaged list revokes nothing")
	}
	if n := strings.Count(log.String(), "list of revoked certificates is invalid"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// The log says once that a list is overdue, and again for the next one.
func TestOverdueListIsReportedOnce(t *testing.T) {
	log := new(bytes.Buffer)
	s, ca, f := revoking(t, log)
	reports := func(now time.Time) int {
		for range 2 {
			s.warnOverdue(now)
		}
		return strings.Count(log.String(), "should have been replaced")
	}
	now := time.Now()
	if n := reports(now.Add(59 * time.Minute)); n != 0 {
		t.Errorf("reported %d times before it is due", n)
	}
	if n := reports(now.Add(61 * time.Minute)); n != 1 {
		t.Errorf("reported %d times", n)
	}
	put(t, f.CRL, string(ca.Revoke(now.Add(2*time.Hour))))
	s.Current()
	if n := reports(now.Add(61 * time.Minute)); n != 1 {
		t.Errorf("reported %d times, with a new list", n)
	}
	if n := reports(now.Add(3 * time.Hour)); n != 2 {
		t.Errorf("reported %d times, with two lists", n)
	}
}

func TestWithoutAListNothingIsTracked(t *testing.T) {
	s, err := Open(some(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	if s.Track(one) != one || s.Verifier(one) != nil {
		t.Error("the connection is tracked")
	}
	s.EndRevoked(t.Context()) // returns at once
}
