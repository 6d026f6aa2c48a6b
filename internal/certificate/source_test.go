package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write writes a certificate for name and its key to the files. The certificate is its own authority.
func write(t *testing.T, f Files, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, f.Cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	put(t, f.CA, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	put(t, f.Key, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func some(t *testing.T) Files {
	dir := t.TempDir()
	f := Files{
		Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca"),
		CertFlag: "--cert", KeyFlag: "--key", CAFlag: "--ca", CRLFlag: "--crl",
	}
	write(t, f, "first")
	return f
}

func wantName(t *testing.T, s *Source, name string) {
	t.Helper()
	if got := s.Current().Pair.Leaf.Subject.CommonName; got != name {
		t.Errorf("the certificate in force is the %s, want the %s", got, name)
	}
}

func TestChangedFilesTakeEffect(t *testing.T) {
	f, log := some(t), new(bytes.Buffer)
	s, err := Open(f, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	wantName(t, s, "first")
	s.LookEvery(time.Hour)
	write(t, f, "second")
	wantName(t, s, "first") // Current has not been called since the change
	s.LookEvery(0)
	wantName(t, s, "second")
	if s.Current().CAs == nil || s.Current().Expiry().Before(time.Now()) {
		t.Error("the authority or the end is missing")
	}
	wantName(t, s, "second")
	if n := strings.Count(log.String(), "have changed"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestInvalidFilesKeepOldCertificate(t *testing.T) {
	f, log := some(t), new(bytes.Buffer)
	s, err := Open(f, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.LookEvery(0)
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		put(t, name, "of no use")
		for range 3 {
			wantName(t, s, "first")
		}
		if n := strings.Count(log.String(), "files are invalid;"); n != 1 {
			t.Errorf("%s: logged %d times", name, n)
		}
		log.Reset()
		write(t, f, "first")
		wantName(t, s, "first")
		log.Reset()
	}
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	wantName(t, s, "first")
	write(t, f, "second")
	wantName(t, s, "second")
}

func TestErrorsNameTheFlag(t *testing.T) {
	for _, c := range []struct {
		spoil func(*Files)
		part  string
	}{
		{func(f *Files) { f.Cert += "x" }, "--cert and --key"},
		{func(f *Files) { f.Key = f.Cert }, "--cert and --key"},
		{func(f *Files) { f.CA += "x" }, "fix --ca"},
		{func(f *Files) { f.CA = f.Key }, "give --ca a file in PEM form"},
	} {
		f := some(t)
		c.spoil(&f)
		if _, err := Open(f, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%v does not contain %q", err, c.part)
		}
	}
	f := some(t)
	f.CA = ""
	if s, err := Open(f, slog.New(slog.DiscardHandler)); err != nil || s.Current().CAs != nil {
		t.Errorf("without an authority: %v", err)
	}
}
