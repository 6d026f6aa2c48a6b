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
)

// Defaults of [Config].
const (
	DefaultSilence      = 2 * time.Second
	DefaultFrameLife    = time.Second
	DefaultUrgentFrames = 4096
	DefaultUrgentBytes  = 8 << 20
	DefaultBulkFrames   = 16384
	DefaultBulkBytes    = 64 << 20
	DefaultMaxFrame     = 32 << 20
)

// Config describes a [Transport].
type Config struct {
	// Self is this member, of the group ClusterID. Incarnation is that of its data folder.
	Self, ClusterID, Incarnation uint64
	// Members are the addresses, as host:port, of all members of the group. That of this one must be the one that
	// the others have for it: with certificates it says for which host this member's must be.
	Members map[uint64]string
	// Listener is where the others reach this member. It is the transport's, which closes it, from Start on.
	Listener net.Listener
	// Files, unless empty, have members prove to each other by certificates that they are members.
	Files CertificateFiles

	// Receive takes a frame, which is its own from then on, of another member. It must not wait: what it has no room
	// for it drops. Calls for frames of one member and class come one after the other.
	Receive func(from, incarnation uint64, frame []byte)
	// Connected, which may be nil, is told of each connection that a member opens, before any frame of it.
	Connected func(from, incarnation uint64)
	// ReceiveState takes a frame with the state that belongs to it, which is whole when state says io.EOF. What it
	// returns goes to the sender. It must end soon after ctx does. There is one call at a time for each member.
	ReceiveState func(ctx context.Context, from, incarnation uint64, frame []byte, state io.Reader) error
	// Unreachable, which may be nil, is told that frames for a member may have been lost.
	Unreachable func(member uint64)
	// Logger hears when a member becomes reachable or unreachable, and who is refused. Nil: nobody does.
	Logger *slog.Logger

	// Silence is how long a member may leave pings without an echo before its connection is given up.
	Silence time.Duration
	// FrameLife is for how long an urgent frame is worth sending.
	FrameLife time.Duration
	// What may wait for each member. One frame may always wait, if it is not larger than MaxFrame.
	UrgentFrames, UrgentBytes int
	BulkFrames, BulkBytes     int
	// MaxFrame is the size of the largest frame that is sent or taken. All members should have the same. It also
	// bounds the requests in calls of clients that are passed on.
	MaxFrame int

	retryLimit time.Duration // tests set it to see what does not wait for it
}

// CertificateFiles name files in PEM form. All of them are given, or none.
type CertificateFiles struct {
	Cert, Key string
	// CA has the certificates from which those of all members must descend. A process that shows one which does, and
	// is for the host of a member, is taken for that member.
	CA string
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
		return errors.New("peer: there is nobody to receive")
	}
	for _, member := range slices.Sorted(maps.Keys(c.Members)) {
		host, port, err := net.SplitHostPort(c.Members[member])
		if err != nil || member == 0 || host == "" || port == "" {
			return fmt.Errorf("peer: %q is not the address of a member (%x): write HOST:PORT", c.Members[member], member)
		}
	}
	c.Members = maps.Clone(c.Members)
	if c.Unreachable == nil {
		c.Unreachable = func(uint64) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c.completeLimits()
}

func (c *Config) completeLimits() error {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&c.Silence, DefaultSilence}, {&c.FrameLife, DefaultFrameLife}, {&c.retryLimit, retryLimit}} {
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
