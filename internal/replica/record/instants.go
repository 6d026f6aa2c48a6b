package record

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Instants translates between instants of this process's clock domain and instants on the disk. Instants on the disk that
// were read in an earlier domain cannot be compared with those of this process. They count from the moment at which this
// member first ran in the present domain. That moment is later, so nothing ends early.
type Instants struct {
	sequence uint32
	origin   clock.Instant
	now      clock.Instant // read after the newest of the decoded instants was written
	ahead    bool          // an instant of this domain was decoded that lies ahead of now on either clock
}

// OpenInstants reads in which domain the newest instants were written, and begins a new domain if that is not this one.
func OpenInstants(db *pebble.DB, domain clock.Domain, now clock.Instant) (*Instants, error) {
	stored := new(logpb.Domain)
	found, err := Load(db, KeyDomain, stored)
	if err != nil {
		return nil, err
	}
	origin := clock.Instant{Raw: stored.Origin.GetRawNs(), Boot: stored.Origin.GetBootNs()}
	if found && domain.Same(clock.Domain(stored.Name)) && now.Until(origin) <= 0 {
		return &Instants{sequence: stored.Sequence, origin: origin, now: now}, nil
	}
	return beginDomain(db, domain, stored.Sequence+1, now)
}

// beginDomain writes that instants count from now on in another domain than before.
func beginDomain(db *pebble.DB, domain clock.Domain, sequence uint32, now clock.Instant) (*Instants, error) {
	fresh := &Instants{sequence: sequence, origin: now, now: now}
	origin, _ := fresh.Encode(now)
	batch := db.NewBatch()
	Put(batch, KeyDomain, &logpb.Domain{Sequence: fresh.sequence, Name: string(domain), Origin: origin})
	return fresh, batch.Commit(pebble.Sync)
}

// NewDomain begins a new domain at now, in which this process's clocks are read from now on.
func (i *Instants) NewDomain(db *pebble.DB, domain clock.Domain, now clock.Instant) (*Instants, error) {
	return beginDomain(db, domain, i.sequence+1, now)
}

// Domain returns the number of this process's clock domain in the database.
func (i *Instants) Domain() uint32 { return i.sequence }

// Read notes that the instants which are decoded from now on were written before now.
func (i *Instants) Read(now clock.Instant) { i.now = now }

// Ahead reports whether an instant of this domain was decoded that lies ahead of this process's clocks.
func (i *Instants) Ahead() bool { return i.ahead }

// Encode returns an instant of this process, and the number of its domain.
func (i *Instants) Encode(at clock.Instant) (*logpb.Instant, uint32) {
	return &logpb.Instant{RawNs: at.Raw, BootNs: at.Boot}, i.sequence
}

// Decode returns an instant on the disk as one of this process.
func (i *Instants) Decode(at *logpb.Instant, domain uint32) clock.Instant {
	if domain != i.sequence {
		return i.origin
	}
	then := clock.Instant{Raw: at.GetRawNs(), Boot: at.GetBootNs()}
	i.ahead = i.ahead || i.now.Until(then) > 0
	return then
}

// SetLease makes m the record of a lease that no claim made.
func (i *Instants) SetLease(m *logpb.Lease, l *lessor.Record) {
	m.Id, m.Generation, m.TtlNs, m.Cleared = int64(l.ID), uint64(l.Generation), int64(l.TTL), uint64(l.Cleared)
	m.Pinned, m.RenewalRefused = l.Pinned, l.RenewalRefused
	m.Claimed, m.Name, m.Priority, m.Overtaken, m.Creator, m.Checkpointed = false, m.Name[:0], 0, false, m.Creator[:0], nil
	if l.Checkpointed {
		instant, domain := i.Encode(l.Applied)
		m.Checkpointed = &logpb.Checkpointed{RemainingNs: int64(l.Remaining), Applied: instant, Domain: domain}
	}
}

// LeaseOf returns the lease of a record. It refuses a record that no member ever wrote.
func (i *Instants) LeaseOf(m *logpb.Lease) (lessor.Record, error) {
	l := lessor.Record{
		ID: lessor.ID(m.Id), Generation: lessor.Generation(m.Generation),
		TTL: time.Duration(m.TtlNs), Cleared: lessor.Position(m.Cleared), Pinned: m.Pinned, RenewalRefused: m.RenewalRefused,
	}
	if c := m.Checkpointed; c != nil {
		l.Checkpointed, l.Remaining = true, time.Duration(c.RemainingNs)
		l.Applied = i.Decode(c.Applied, c.Domain)
	}
	if l.ID == lessor.NoLease || l.Generation == 0 || l.Cleared < l.Generation || l.TTL <= 0 || l.TTL > lessor.MaxTTL ||
		l.Remaining < 0 || l.Remaining > l.TTL {
		return l, &DamagedError{What: fmt.Sprintf("the record of lease %x makes no sense: %+v", uint64(l.ID), l)}
	}
	return l, nil
}

// Leaderships returns the leaderships in a database, oldest first, and the greatest of their terms.
func (i *Instants) Leaderships(db pebble.Reader) (all []lessor.Leadership, term uint64, err error) {
	err = Leaderships(db, func(m *logpb.Leadership) bool {
		term = max(term, m.Term)
		all = append(all, lessor.Leadership{Start: lessor.Position(m.Start), Applied: i.Decode(m.Applied, m.Domain)})
		return true
	})
	return all, term, err
}
