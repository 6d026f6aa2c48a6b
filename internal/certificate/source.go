package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Recheck is how often a [Source] looks whether its files have changed.
const Recheck = time.Second

// Files name files in PEM form.
type Files struct {
	Cert, Key string
	// CA has the certificates that others' must descend from. It may be missing.
	CA string
	// CertFlag, KeyFlag and CAFlag are what people set the names with, for what errors tell them.
	CertFlag, KeyFlag, CAFlag string
}

// InForce is what was read from the files.
type InForce struct {
	Pair tls.Certificate
	CAs  *x509.CertPool // nil without a file
}

// Expiry is when the certificate ends.
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

// stamp tells versions of a file apart without reading it.
type stamp struct {
	modified time.Time
	size     int64
}

// stamps looks at the files. One that cannot be looked at has no stamp.
func (f Files) stamps() (stamps [3]stamp) {
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// A Source gives what is in force. Its methods may be called from several goroutines.
type Source struct {
	files Files
	log   *slog.Logger

	mu        sync.Mutex
	recheck   time.Duration
	looked    time.Time
	stamps    [3]stamp
	current   *InForce // never changed, only replaced
	complaint string   // why the files as they are now are not in force; "" if they are
}

// Open reads the files.
func Open(files Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, log: log, recheck: Recheck, looked: time.Now()}
	// Before reading, so that what is written meanwhile is seen the next time.
	s.stamps = files.stamps()
	var err error
	s.current, err = files.Read()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// LookEvery replaces [Recheck]; 0 has every question look at the files.
func (s *Source) LookEvery(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recheck = d
}

// Current returns what the next handshake is made with.
func (s *Source) Current() *InForce {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < s.recheck {
		return s.current
	}
	s.looked = time.Now()
	stamps := s.files.stamps()
	if stamps == s.stamps && s.complaint == "" {
		return s.current
	}
	s.stamps = stamps
	read, err := s.files.Read()
	if err != nil {
		if s.complaint != err.Error() {
			s.complaint = err.Error()
			s.log.Error("the changed certificates are of no use; those from before stay in force", "error", err)
		}
		return s.current
	}
	s.current, s.complaint = read, ""
	s.log.Info("the certificates have changed; new connections use them", "expires", read.Expiry())
	return s.current
}
