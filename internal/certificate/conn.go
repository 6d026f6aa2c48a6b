package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/reread"
)

// Conn is a connection that its [Source] closes when the certificate of the other side is revoked. Its methods are as safe for
// concurrent use as those of the connection in it.
type Conn struct {
	net.Conn
	source *Source
	chains [][]*x509.Certificate // guarded by Source.mu
	closed sync.Once
}

// Track prepares a connection for [Source.Verifier], before its handshake. It returns the connection itself if there is no file
// of revoked certificates. The caller must close what Track returns.
func (s *Source) Track(conn net.Conn) net.Conn {
	if s.files.CRL == "" {
		return conn
	}
	return &Conn{Conn: conn, source: s}
}

// Verifier returns the function VerifyConnection for the handshake on a connection that Track has returned; nil if there is no
// file of revoked certificates. The function refuses a revoked certificate, and lets the Source close the connection later.
func (s *Source) Verifier(conn net.Conn) func(tls.ConnectionState) error {
	if s.files.CRL == "" {
		return nil
	}
	return conn.(*Conn).admit
}

// RevokedError says that the other side of a connection has shown a revoked certificate.
type RevokedError struct{ Cert *x509.Certificate }

func (e *RevokedError) Error() string {
	return fmt.Sprintf("the certificate %s with the number %s is revoked", e.Cert.Subject, e.Cert.SerialNumber)
}

// admit registers the connection, unless the certificate is revoked. The Source looks at the connection either here or when
// the list changes, because both happen under its lock.
func (c *Conn) admit(state tls.ConnectionState) error {
	s := c.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if cert := s.revoked.refuses(state.VerifiedChains); cert != nil {
		s.reportRefusal(cert, c.RemoteAddr())
		return &RevokedError{cert}
	}
	c.chains = state.VerifiedChains
	s.open[c] = struct{}{}
	return nil
}

// reportRefusal logs at most one refusal per interval, because a refused program may try again without end. The caller holds
// the lock.
func (s *Source) reportRefusal(cert *x509.Certificate, from net.Addr) {
	now := time.Now()
	if now.Sub(s.refusalLogged).Abs() < reread.Interval {
		return
	}
	s.refusalLogged = now
	s.log.Warn("a revoked certificate was refused", "subject", cert.Subject.String(), "number", cert.SerialNumber.String(), "from", from.String())
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.closed.Do(func() {
		c.source.mu.Lock()
		defer c.source.mu.Unlock()
		delete(c.source.open, c)
	})
	return c.Conn.Close()
}

// EndRevoked closes open connections whose certificates are revoked, until ctx ends. It looks at the file of revoked
// certificates every [reread.Interval], and so notices a change within two of them. It returns at once if there is no such file.
func (s *Source) EndRevoked(ctx context.Context) {
	if s.files.CRL == "" {
		return
	}
	ticker := time.NewTicker(reread.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.Current() // closes them
			s.warnOverdue(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// closeRevoked closes the connections whose certificates are revoked. The caller holds the lock.
func (s *Source) closeRevoked() {
	for conn := range s.open {
		cert := s.revoked.refuses(conn.chains)
		if cert == nil {
			continue
		}
		delete(s.open, conn)
		s.log.Warn("a connection is closed because its certificate was revoked", "subject", cert.Subject.String(), "number", cert.SerialNumber.String(),
			"from", conn.RemoteAddr().String())
		_ = conn.Conn.Close() // never waits; an error means that it is closed
	}
}

// warnOverdue logs, once for each contents of the file, that a list should have a successor by now.
func (s *Source) warnOverdue(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if due := s.revoked.due; !due.IsZero() && now.After(due) && s.overdue != s.revoked {
		s.overdue = s.revoked
		s.log.Warn("the list of revoked certificates should have been replaced: certificates that were revoked since are accepted, those in the list are refused",
			"file", s.files.CRL, "next_update", due)
	}
}
