package certificate

import (
	"crypto/tls"
	"crypto/x509"
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
	// CertFlag, KeyFlag and CAFlag are the command-line flags of these files, for error messages.
	CertFlag, KeyFlag, CAFlag string
}

// InForce is the contents of the files.
type InForce struct {
	Pair tls.Certificate
	CAs  *x509.CertPool // nil without a file
}

// Expiry returns the end of the certificate's validity.
func (f *InForce) Expiry() time.Time { return f.Pair.Leaf.NotAfter }

// Read reads the files.
func (f Files) Read() (*InForce, error) {
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
	return read, nil
}

// A Source provides the current contents of certificate files. Its methods are safe for concurrent use.
type Source struct {
	files Files
	log   *slog.Logger

	mu      sync.Mutex
	watched reread.Files
	current *InForce // never modified, only replaced
}

// Open reads the files.
func Open(files Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, log: log, watched: reread.Watch(time.Now(), files.Cert, files.Key, files.CA)}
	var err error
	s.current, err = files.Read()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// LookEvery replaces [reread.Interval]; 0 makes every call of Current check the files.
func (s *Source) LookEvery(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched.LookEvery(d)
}

// Current returns the contents for the next handshake.
func (s *Source) Current() *InForce {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watched.Changed(time.Now()) {
		return s.current
	}
	read, err := s.files.Read()
	if news := s.watched.Used(err); news {
		s.log.Error("the changed certificate files are invalid; the earlier ones stay in use", "error", err)
	}
	if err != nil {
		return s.current
	}
	s.current = read
	s.log.Info("the certificates have changed; new connections use them", "expires", read.Expiry())
	return s.current
}
