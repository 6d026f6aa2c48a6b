package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// The defaults of [Config].
const (
	DefaultSilence      = 2 * time.Second
	DefaultFrameLife    = time.Second
	DefaultUrgentFrames = 4096
	DefaultUrgentBytes  = 8 << 20
	DefaultBulkFrames   = 16384
	DefaultBulkBytes    = 64 << 20
	DefaultMaxFrame     = 32 << 20

	DefaultMaxConnections = 128
)

// Config is the configuration of a [Transport].
type Config struct {
	// Self is this member's ID and ClusterID its cluster's. Incarnation is the number of its data directory.
	Self, ClusterID, Incarnation uint64
	// InUse, if not nil, returns the version of the log that the cluster uses. Members that do not know it are refused.
	InUse func() gate.Version
	// Listed, if not nil, reports whether the members have agreed on the list that [Transport.SetMembers] received last.
	// A list that they have not agreed on does not say which members have started. Until they have, this member invites no
	// process to join. Nil means that they have agreed on every list.
	Listed func() bool
	// Members are the addresses, as host:port, of all members of the cluster until [Transport.SetMembers] changes them. The
	// address of this member must be the one that the other members have: with certificates, its host is the one for which
	// this member's certificate must be.
	Members map[uint64]string
	// Drift and MasterLease are those of this member. A process that joins the cluster must have the same.
	Drift       clock.Drift
	MasterLease time.Duration
	// Listener accepts the other members' connections. From Start on, the transport owns it and closes it.
	Listener net.Listener
	// Files, unless empty, are the certificates by which the members prove to each other that they are members.
	Files CertificateFiles

	// Receive handles a frame of another member, and owns it. It must not block, and drops a frame for which it has
	// no room. Calls for frames of one member and one class do not overlap.
	Receive func(from, incarnation uint64, frame []byte)
	// Connected, if not nil, is called for each connection that a member opens, before any of its frames.
	Connected func(from, incarnation uint64)
	// ReceiveState handles a frame with its state. The state is complete when its reader returns io.EOF. The sender
	// receives the returned error. ReceiveState must end soon after ctx. It is called for one state of a member at a
	// time.
	ReceiveState func(ctx context.Context, from, incarnation uint64, frame []byte, state io.Reader) error
	// Unreachable, if not nil, is called when frames for a member may have been lost.
	Unreachable func(member uint64)
	// Logger logs members that become reachable or unreachable, and refused callers. Nil logs nothing.
	Logger *slog.Logger

	// Silence is the time for which pings may remain without an echo before the connection is closed.
	Silence time.Duration
	// FrameLife is the age from which an urgent frame is no longer sent.
	FrameLife time.Duration
	// The bounds of the queues for each member. A single frame is always queued if it is not larger than MaxFrame.
	UrgentFrames, UrgentBytes int
	BulkFrames, BulkBytes     int
	// MaxFrame is the size of the largest frame that is sent or accepted. All members should have the same value. It
	// also bounds the requests of clients that are forwarded to another member.
	MaxFrame int
	// MaxConnections is the largest number of accepted connections, each of which takes a descriptor. A member has two, and
	// more while it restarts.
	MaxConnections int

	retryLimit time.Duration // only tests set it, as guestIdle
	guestIdle  time.Duration
}

// CertificateFiles are paths of files in PEM form. Either none is set, or all but CRL, or all.
type CertificateFiles struct {
	Cert, Key string
	// CA holds the authorities that must have issued all members' certificates. A process with such a certificate for
	// the host of a member in the list is accepted as that member. With one for any other host it may send frames and
	// states under any ID. So the authorities must certify nothing but members.
	CA string
	// CRL, unless empty, holds lists of certificates that the authorities have revoked. The transport refuses members with
	// such a certificate, and closes their connections within seconds of a change of the file.
	CRL string
}

func (f CertificateFiles) empty() bool { return f == CertificateFiles{} }

func (c *Config) complete() error {
	switch {
	case c.Self == 0 || c.ClusterID == 0 || c.Incarnation == 0:
		return errors.New("peer: a member's id, its cluster id and its incarnation must not be 0")
	case c.Members[c.Self] == "":
		return fmt.Errorf("peer: the members do not include this one, %x", c.Self)
	case c.Listener == nil:
		return errors.New("peer: there is no listener")
	case c.Receive == nil || c.ReceiveState == nil:
		return errors.New("peer: Config.Receive is nil")
	}
	for _, member := range slices.Sorted(maps.Keys(c.Members)) {
		if member == 0 || !validAddress(c.Members[member]) {
			return fmt.Errorf("peer: %q is not the address of a member (%x): write HOST:PORT", c.Members[member], member)
		}
	}
	c.Members = maps.Clone(c.Members)
	if c.InUse == nil {
		c.InUse = func() gate.Version { return 0 }
	}
	if c.Listed == nil {
		c.Listed = func() bool { return true }
	}
	if c.Unreachable == nil {
		c.Unreachable = func(uint64) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c.completeLimits()
}

// maxAddress bounds the length of an address that another process names.
const maxAddress = 300

// validAddress reports whether an address has the form host:port.
func validAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && host != "" && port != "" && len(address) <= maxAddress
}

func (c *Config) completeLimits() error {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&c.Silence, DefaultSilence}, {&c.FrameLife, DefaultFrameLife}, {&c.retryLimit, retryLimit}, {&c.guestIdle, guestIdle}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		if *d.value < 0 {
			return fmt.Errorf("peer: %v is not a positive length of time", *d.value)
		}
	}
	for _, n := range []struct {
		value    *int
		standard int
	}{
		{&c.UrgentFrames, DefaultUrgentFrames}, {&c.UrgentBytes, DefaultUrgentBytes},
		{&c.BulkFrames, DefaultBulkFrames}, {&c.BulkBytes, DefaultBulkBytes}, {&c.MaxFrame, DefaultMaxFrame},
		{&c.MaxConnections, DefaultMaxConnections},
	} {
		if *n.value == 0 {
			*n.value = n.standard
		}
		if *n.value < 0 || *n.value > 1<<30 {
			return fmt.Errorf("peer: a limit of %d is none: give one from 1 to %d", *n.value, 1<<30)
		}
	}
	return nil
}
