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

// Recheck is the interval at which a [Source] checks its files for changes.
const Recheck = time.Second

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

// stamp identifies a version of a file without reading it.
type stamp struct {
	modified time.Time
	size     int64
}

// stamps returns the stamps of the files. A file that cannot be examined has a zero stamp.
func (f Files) stamps() (stamps [3]stamp) {
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// A Source provides the current contents of certificate files. Its methods are safe for concurrent use.
type Source struct {
	files Files
	log   *slog.Logger

	mu        sync.Mutex
	recheck   time.Duration
	looked    time.Time
	stamps    [3]stamp
	current   *InForce // never modified, only replaced
	complaint string   // error of the files' current version; "" if it is in use
}

// Open reads the files.
func Open(files Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, log: log, recheck: Recheck, looked: time.Now()}
	// Before reading, so that the next check notices changes during the reading.
	s.stamps = files.stamps()
	var err error
	s.current, err = files.Read()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// LookEvery replaces [Recheck]; 0 makes every call of Current check the files.
func (s *Source) LookEvery(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recheck = d
}

// Current returns the contents for the next handshake.
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
			s.log.Error("the changed certificate files are invalid; the earlier ones stay in use", "error", err)
		}
		return s.current
	}
	s.current, s.complaint = read, ""
	s.log.Info("the certificates have changed; new connections use them", "expires", read.Expiry())
	return s.current
}
