package replica

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// recover rebuilds the member from its database: identity, log, leases, keys, and which key is attached
// to which lease.
func (r *Replica) recover() (err error) {
	if err = r.identify(); err != nil {
		return err
	}
	if r.instants, err = openInstants(r.db, r.cfg.Domain, r.cfg.Now); err != nil {
		return err
	}
	r.log = new(raftlog.Log)
	err = r.reload(func(leases keyspace.Leases) (err error) {
		if r.store, err = keyspace.Open(r.db, leases); err == nil {
			r.store.LimitAnswers(keyspace.AnswerLimits{Each: r.cfg.AnswerBytes / writeAnswerShare, All: r.cfg.AnswerBytes})
		}
		return err
	})
	r.term = r.log.HardState().GetTerm()
	return err
}

// reload rebuilds what is in memory from the database. Others hold the log and the keyspace: they stay the same, with
// other contents. openKeys has the keyspace read what it is.
func (r *Replica) reload(openKeys func(keyspace.Leases) error) error {
	if err := record.FlushLogged(r.db); err != nil {
		return err
	}
	applied := new(logpb.Applied)
	if _, err := record.Load(r.db, record.KeyApplied, applied); err != nil {
		return err
	}
	r.applied = raftlog.Mark{Index: applied.Index, Term: applied.Term}
	stable, err := raftlog.Open(r.db, r.applied.Index, r.cfg.LogStep)
	if err != nil {
		return err
	}
	*r.log = *stable
	r.settled = r.log.HardState().GetCommit()
	if err := r.recoverTerms(); err != nil {
		return err
	}
	r.log.Show(&r.applied)
	r.names.Reset()
	r.buffer = record.NewBuffer()
	if err := r.recoverLeases(); err != nil {
		return err
	}
	if err := openKeys(bindings{r.lessor}); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	r.sweeping = true
	if err := r.recoverNames(); err != nil {
		return err
	}
	if err := r.recoverBindings(); err != nil {
		return err
	}
	return r.completeNames()
}

// identify reads who this member is, or writes it when the database is new.
func (r *Replica) identify() error {
	identity := new(logpb.Identity)
	found, err := record.Load(r.db, record.KeyIdentity, identity)
	if err != nil {
		return err
	}
	if !found {
		if identity, err = r.found(); err != nil {
			return err
		}
	}
	if identity.Format != record.Format {
		return fmt.Errorf("the data is of format %d and this program knows format %d: "+
			"use the version of leasekeeper that wrote it", identity.Format, record.Format)
	}
	r.identity = Header{ClusterID: identity.ClusterId, MemberID: identity.MemberId}
	r.incarnation = identity.Incarnation
	return nil
}

// found makes an empty database that of a member of a new group.
func (r *Replica) found() (*logpb.Identity, error) {
	it, err := r.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	empty := !it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, err
	}
	if !empty {
		return nil, &record.DamagedError{What: "the database is not empty but does not say whose it is"}
	}
	if r.cfg.ClusterID == 0 || r.cfg.MemberID == 0 {
		return nil, errors.New("replica: a new database needs a cluster id and a member id")
	}
	voters := slices.Sorted(slices.Values(r.cfg.Members))
	if len(voters) == 0 {
		voters = []uint64{r.cfg.MemberID}
	}
	if !slices.Contains(voters, r.cfg.MemberID) || len(slices.Compact(slices.Clone(voters))) != len(voters) || slices.Contains(voters, 0) {
		return nil, fmt.Errorf("replica: a new group needs members that differ, this one among them, and not %x with this one %x", voters, r.cfg.MemberID)
	}
	identity := &logpb.Identity{
		Format: record.Format, ClusterId: r.cfg.ClusterID, MemberId: r.cfg.MemberID, Incarnation: r.cfg.Incarnation,
	}
	batch := r.db.NewBatch()
	record.Put(batch, record.KeyIdentity, identity)
	record.Put(batch, record.KeyConfState, &raftpb.ConfState{Voters: voters})
	if len(voters) > 1 {
		// Should it never be asked for more, this is what it waits for when it starts again.
		record.Put(batch, record.KeyPromised, &logpb.Promised{LongestNs: int64(r.cfg.Drift.GrantPromise(r.cfg.MasterLease))})
		if err := batch.Set(record.KeyNew, nil, nil); err != nil {
			return nil, err
		}
	}
	return identity, batch.Commit(pebble.Sync)
}

// recoverLeases rebuilds the lessor. If an instant on the disk lies ahead of this process's clocks, these bear the name
// of other clocks: of a machine from which the folder was copied together with the boot id, perhaps. Then no instant on
// the disk can be compared with theirs, and the lessor is rebuilt in a new domain.
func (r *Replica) recoverLeases() error {
	if err := r.rebuildLessor(); err != nil || !r.instants.ahead {
		return err
	}
	fresh, err := newDomain(r.db, r.cfg.Domain, r.instants.sequence+1, r.now)
	if err != nil {
		return err
	}
	r.instants = fresh
	return r.rebuildLessor()
}

func (r *Replica) rebuildLessor() error {
	r.instants.now = r.now
	var failed error
	records := func(yield func(lessor.Record) bool) {
		var senseless error
		failed = record.Leases(r.db, func(m *logpb.Lease) bool {
			lease := r.leaseRecord(m)
			senseless = checkRecord(lease)
			if m.Claimed {
				r.names.RestoreClaim(lease.ID, string(m.Name))
			}
			return senseless == nil && yield(lease)
		})
		failed = errors.Join(failed, senseless)
	}
	var leaderships []lessor.Leadership
	err := record.Leaderships(r.db, func(m *logpb.Reign) bool {
		r.leadershipTerm = max(r.leadershipTerm, m.Term)
		leaderships = append(leaderships, lessor.Leadership{Start: lessor.Position(m.Start), Applied: r.instants.decode(m.Applied, m.Domain)})
		return true
	})
	if err != nil {
		return err
	}
	r.lessor = lessor.New(lessor.Config{MaxExpiries: intake.MaxExpiries})
	r.lessor.SetRangeDeleter(func() lessor.TxnDelete { return leaseKeys{r} })
	r.lessor.SetCheckpointer(r.checkpoint)
	r.lessor.Recover(iter.Seq[lessor.Record](records), leaderships)
	return failed
}

// checkRecord reports what no member ever wrote.
func checkRecord(l lessor.Record) error {
	if l.ID == lessor.NoLease || l.Generation == 0 || l.Cleared < l.Generation || l.TTL <= 0 || l.TTL > lessor.MaxTTL ||
		l.Remaining < 0 || l.Remaining > l.TTL {
		return &record.DamagedError{What: fmt.Sprintf("the record of lease %x makes no sense: %+v", uint64(l.ID), l)}
	}
	return nil
}

func (r *Replica) leaseRecord(m *logpb.Lease) lessor.Record {
	lease := lessor.Record{
		ID: lessor.ID(m.Id), Generation: lessor.Generation(m.Generation),
		TTL: time.Duration(m.TtlNs), Cleared: lessor.Position(m.Cleared), Pinned: m.Pinned, RenewalRefused: m.Doomed,
	}
	if c := m.Checkpointed; c != nil {
		lease.Checkpointed, lease.Remaining = true, time.Duration(c.RemainingNs)
		lease.Applied = r.instants.decode(c.Applied, c.Domain)
	}
	return lease
}

// recoverBindings attaches every key to the lease that it names.
func (r *Replica) recoverBindings() error {
	var failed error
	err := r.store.Keys(func(kv keyspace.KV) bool {
		r.names.RestoreKey(kv.Key, lessor.ID(kv.Lease), kv.CreateRevision)
		if kv.Lease == 0 {
			return true
		}
		if err := r.lessor.Attach(lessor.ID(kv.Lease), []lessor.Item{{Key: string(kv.Key)}}); err != nil {
			failed = &record.DamagedError{What: fmt.Sprintf("key %q is attached to lease %x", kv.Key, uint64(kv.Lease)), Err: err}
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// instants translates between instants of this process's clock domain and those on the disk. Instants that
// were read in an earlier domain cannot be compared with ours: they count from the moment at which this
// member first ran in the present one, which is later, so that nothing ends early.
type instants struct {
	sequence uint32
	origin   clock.Instant
	now      clock.Instant // read after the newest of what is decoded was written
	ahead    bool          // one of this domain was decoded that lies ahead of now on either clock
}

func openInstants(db *pebble.DB, domain clock.Domain, now clock.Instant) (*instants, error) {
	stored := new(logpb.Domain)
	found, err := record.Load(db, record.KeyDomain, stored)
	if err != nil {
		return nil, err
	}
	origin := clock.Instant{Raw: stored.Origin.GetRawNs(), Boot: stored.Origin.GetBootNs()}
	if found && domain.Same(clock.Domain(stored.Name)) && now.Until(origin) <= 0 {
		return &instants{sequence: stored.Sequence, origin: origin}, nil
	}
	return newDomain(db, domain, stored.Sequence+1, now)
}

// newDomain writes that instants count from now on in another domain than before.
func newDomain(db *pebble.DB, domain clock.Domain, sequence uint32, now clock.Instant) (*instants, error) {
	fresh := &instants{sequence: sequence, origin: now}
	origin, _ := fresh.encode(now)
	batch := db.NewBatch()
	record.Put(batch, record.KeyDomain, &logpb.Domain{Sequence: fresh.sequence, Name: string(domain), Origin: origin})
	return fresh, batch.Commit(pebble.Sync)
}

func (i *instants) encode(at clock.Instant) (*logpb.Instant, uint32) {
	return &logpb.Instant{RawNs: at.Raw, BootNs: at.Boot}, i.sequence
}

func (i *instants) decode(at *logpb.Instant, domain uint32) clock.Instant {
	if domain != i.sequence {
		return i.origin
	}
	then := clock.Instant{Raw: at.GetRawNs(), Boot: at.GetBootNs()}
	i.ahead = i.ahead || i.now.Until(then) > 0
	return then
}

func sortedIDs[V any](m map[lessor.ID]V) []lessor.ID {
	return slices.Sorted(maps.Keys(m))
}
