package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/reread"
)

// Files are paths of files in PEM form.
type Files struct {
	Cert, Key string
	// CA is the file of the authorities that must have issued the other side's certificates. It may be empty.
	CA string
	// CRL is the file of the certificates that authorities in CA have revoked, in PEM form or as one list in DER form. It may be
	// empty, and needs CA.
	CRL string
	// CertFlag, KeyFlag, CAFlag and CRLFlag are the command-line flags of these files, for error messages.
	CertFlag, KeyFlag, CAFlag, CRLFlag string
}

// InForce is the contents of the files.
type InForce struct {
	Pair tls.Certificate
	CAs  *x509.CertPool // nil without a file

	authorities []*x509.Certificate // those in CAs
}

// Expiry returns the end of the certificate's validity.
func (f *InForce) Expiry() time.Time { return f.Pair.Leaf.NotAfter }

// Check returns what is wrong with the files. It reads them.
func (f Files) Check() error {
	read, err := f.read()
	if err == nil {
		_, err = f.readRevoked(read)
	}
	return err
}

// readRevoked reads the file of revoked certificates, which the authorities in force must have signed.
func (f Files) readRevoked(now *InForce) (*revoked, error) {
	if f.CRL == "" {
		return new(revoked), nil
	}
	list, err := readRevoked(f.CRL, now.authorities)
	if err != nil {
		return nil, fmt.Errorf("cannot use the list of revoked certificates (%w): fix %s, or %s", err, f.CRLFlag, f.CAFlag)
	}
	return list, nil
}

// read reads the files, except that of revoked certificates.
func (f Files) read() (*InForce, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate %s with the key %s (%w): fix %s and %s",
			f.Cert, f.Key, err, f.CertFlag, f.KeyFlag)
	}
	read := &InForce{Pair: pair}
	if f.CA == "" {
		return read, nil
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate authorities to trust (%w): fix %s", err, f.CAFlag)
	}
	read.CAs = x509.NewCertPool()
	if !read.CAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s: give %s a file in PEM form", f.CA, f.CAFlag)
	}
	read.authorities = certificatesIn(text)
	return read, nil
}

// certificatesIn returns the certificates in a text. It skips those that cannot be parsed, as [x509.CertPool] does.
func certificatesIn(text []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, cert)
		}
	}
}

// A Source provides the current contents of certificate files. Its methods are safe for concurrent use.
type Source struct {
	files Files
	log   *slog.Logger

	mu      sync.Mutex
	watched reread.Files
	current *InForce // never modified, only replaced
	// The file of revoked certificates is watched apart from the others, so that faults of one do not keep the changes of the
	// others from taking effect.
	watchedCRL reread.Files
	revoked    *revoked           // of no entries without a file
	overdue    *revoked           // about which the log has warned
	open       map[*Conn]struct{} // established connections, if there is a file

	refusalLogged time.Time // when the log last had a refused certificate; zero for never
}

// Open reads the files. With a file of revoked certificates, the caller runs [Source.EndRevoked].
func Open(files Files, log *slog.Logger) (*Source, error) {
	now := time.Now()
	s := &Source{
		files: files, log: log, open: make(map[*Conn]struct{}),
		watched: reread.Watch(now, files.Cert, files.Key, files.CA), watchedCRL: reread.Watch(now, files.CRL),
	}
	var err error
	if s.current, err = files.read(); err != nil {
		return nil, err
	}
	s.revoked, err = files.readRevoked(s.current)
	return s, err
}

// LookEvery replaces [reread.Interval]; 0 makes every call of Current check the files.
func (s *Source) LookEvery(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched.LookEvery(d)
	s.watchedCRL.LookEvery(d)
}

// Current returns the contents for the next handshake.
func (s *Source) Current() *InForce {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.watched.Changed(now) {
		s.reread()
	}
	if s.files.CRL != "" && s.watchedCRL.Changed(now) {
		s.rereadRevoked()
	}
	return s.current
}

// reread reads the changed files. The caller holds the lock.
func (s *Source) reread() {
	read, err := s.files.read()
	if news := s.watched.Used(err); news {
		s.log.Error("the changed certificate files are invalid; the earlier ones stay in use", "error", err)
	}
	if err != nil {
		return
	}
	s.current = read
	s.log.Info("the certificates have changed; new connections use them", "expires", read.Expiry())
}

// rereadRevoked reads the changed list, and closes connections by it. The caller holds the lock.
func (s *Source) rereadRevoked() {
	read, err := s.files.readRevoked(s.current)
	if news := s.watchedCRL.Used(err); news {
		s.log.Error("the changed list of revoked certificates is invalid; the earlier one stays in use", "error", err)
	}
	if err != nil {
		return
	}
	s.revoked = read
	s.log.Info("the list of revoked certificates has changed", "revoked", len(read.serials), "next_update", read.due)
	s.closeRevoked()
}
