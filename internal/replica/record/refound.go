package record

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

const (
	// RevisionsPerSecond is how many revisions a second of the time of day stands for. No cluster makes more in a
	// second. So a cluster that is founded at a second has lower revisions than one that is founded from the same data
	// at a later second, for as long as it exists.
	RevisionsPerSecond = 1 << 20
	// MinRevisionRise is the least number of revisions between those of the data and the first new one: a thousand
	// seconds of RevisionsPerSecond. Changes after a snapshot was made, which are lost, had revisions in between.
	MinRevisionRise = 1 << 30
	// maxRevision leaves room for as many revisions again.
	maxRevision = math.MaxInt64 / 2
)

// Refounding says what Refound makes of a database.
type Refounding struct {
	ClusterID, MemberID, Incarnation uint64 // random and not 0
	// Now is the time of day in seconds since 1970.
	Now int64
	// RevisionAbove is a revision that no earlier cluster with this data has exceeded; 0: unknown.
	RevisionAbove int64
	// HoldOff is for how long no name is granted and no lease ends. Negative: the largest TTL of a lease in the
	// database.
	HoldOff time.Duration
	// DisableAccess disables access. Users and roles stay. No entry of the log enables access again that was not applied
	// yet.
	DisableAccess bool
}

// Refounded is what Refound did.
type Refounded struct {
	Was      int64 // the revision of the database before
	Revision int64 // its revision now, and the first that can be read
	Leases   int
	HoldOff  time.Duration
	InUse    gate.Version // the least version that a program must know to run the member
	// AccessDisabled: access was enabled, or an entry of the log would have enabled it, and [Refounding.DisableAccess]
	// prevented that.
	AccessDisabled bool
}

// A RevisionError says that no new revision is certain to be above all that were issued.
type RevisionError struct {
	Found int64 // the revision of the data
	Next  int64 // by the time of day
	Above int64 // Refounding.RevisionAbove
}

func (e *RevisionError) Error() string {
	if e.Above != 0 {
		return fmt.Sprintf("the data has revision %d, so revisions above %d may have been issued: name a number that no earlier cluster with this data has exceeded, below %d", e.Found, e.Above, int64(maxRevision))
	}
	return fmt.Sprintf("the data has revision %d, and the clock of this machine yields %d for the next one, which is not at least %d higher: "+
		"tokens could repeat; correct the clock, or name a revision that no earlier cluster with this data has exceeded (--revision-above N)", e.Found, e.Next, int64(MinRevisionRise))
}

// revision returns the first revision of the new cluster.
func (c Refounding) revision(found int64) (int64, error) {
	next := int64(0)
	if c.Now > 0 && c.Now <= maxRevision/RevisionsPerSecond {
		next = c.Now * RevisionsPerSecond
	}
	if c.RevisionAbove != 0 {
		if c.RevisionAbove < found || c.RevisionAbove >= maxRevision {
			return 0, &RevisionError{Found: found, Next: next, Above: c.RevisionAbove}
		}
		return max(next, c.RevisionAbove+1), nil
	}
	if next-MinRevisionRise < found {
		return 0, &RevisionError{Found: found, Next: next}
	}
	return next, nil
}

// Refound makes a database that of the only member of a new cluster:
//
//   - It has new ids, so no member of an earlier cluster accepts it.
//   - Its revision is above all that were issued before, and revisions before it are compacted.
//   - Every lease has its full TTL again, counted from the first start.
//   - No name is granted before the hold-off is over. Programs that do not know hold-offs refuse the data.
//   - Access is not enabled if DisableAccess is set.
//
// Entries of the log that were not applied yet stay, and will be applied at revisions above the new one. Applied ones
// are removed, so that a member which joins receives the state and not the entries that do not lead to it.
//
// Refound writes in several batches. After an error, or a crash, the database is of no use.
func Refound(db *pebble.DB, c Refounding) (Refounded, error) {
	identity := new(logpb.Identity)
	found, err := Load(db, KeyIdentity, identity)
	if err != nil {
		return Refounded{}, err
	}
	if !found || identity.Format != Format {
		return Refounded{}, &DamagedError{What: fmt.Sprintf("the data is of format %d, not %d", identity.Format, Format)}
	}
	var r Refounded
	if r.Was, err = keyspace.ReadRevision(db); err != nil {
		return Refounded{}, err
	}
	if r.Revision, err = c.revision(r.Was); err != nil {
		return Refounded{}, err
	}
	if err := FlushLogged(db); err != nil {
		return Refounded{}, err
	}
	var longest time.Duration
	if r.Leases, longest, err = renewLeases(db); err != nil {
		return Refounded{}, err
	}
	if r.HoldOff = c.HoldOff; r.HoldOff < 0 {
		r.HoldOff = longest
	}
	batch := db.NewBatch()
	if err := errors.Join(refoundLog(db, batch), refoundClocks(db, batch), keyspace.Skip(db, batch, r.Revision)); err != nil {
		return Refounded{}, errors.Join(err, batch.Close())
	}
	identity.ClusterId, identity.MemberId, identity.Incarnation = c.ClusterID, c.MemberID, c.Incarnation
	Put(batch, KeyIdentity, identity)
	Put(batch, KeyConfState, &raftpb.ConfState{Voters: []uint64{c.MemberID}})
	for _, key := range [][]byte{KeyNew, KeyPeers, KeyPromised, KeyHoldOff, KeyRoster, KeyContacts, KeyRemoved} { // they speak of members that are no longer there
		Remove(batch, key)
	}
	if c.DisableAccess {
		if r.AccessDisabled, err = disableAccess(db, batch); err != nil {
			return Refounded{}, errors.Join(err, batch.Close())
		}
	}
	if r.InUse, err = putUse(db, batch, r); err != nil {
		return Refounded{}, errors.Join(err, batch.Close())
	}
	return r, batch.Commit(pebble.Sync)
}

// putUse writes the hold-off, if there is one, and which version is in use. It returns that version.
func putUse(db *pebble.DB, batch *pebble.Batch, r Refounded) (gate.Version, error) {
	level := new(logpb.Level)
	if _, err := Load(db, KeyLevel, level); err != nil {
		return 0, err
	}
	needs := gate.Version(level.Level)
	if r.HoldOff > 0 {
		Put(batch, KeyHoldOff, &logpb.HoldOff{DurationNs: int64(r.HoldOff)})
		needs = max(needs, gate.HoldOffs)
	}
	if r.AccessDisabled { // the audit log records it
		needs = max(needs, gate.Access)
	}
	if uint32(needs) > level.Level {
		level.Level = uint32(needs)
		level.Cluster = max(level.Cluster, level.Level)
		Put(batch, KeyLevel, level)
	}
	return needs, nil
}

// Contents describes the data in a database.
type Contents struct {
	ClusterID, MemberID uint64
	Incarnation         uint64 // of the data directory
	Revision            int64
	Leases, Names       int // Names are those with a holder
	LongestTTL          time.Duration
	Applied             uint64 // index of the last log entry that the state contains
	Unapplied           int    // entries after it
	LastIndex, LastTerm uint64 // of the last log entry
}

// Describe reads what a database contains. It writes buffered records to their own keys, so the database must be a copy.
func Describe(db *pebble.DB) (Contents, error) {
	identity, applied := new(logpb.Identity), new(logpb.Applied)
	found, err := Load(db, KeyIdentity, identity)
	if err == nil && (!found || identity.Format != Format) {
		err = &DamagedError{What: fmt.Sprintf("the data is of format %d, not %d", identity.Format, Format)}
	}
	if err != nil {
		return Contents{}, err
	}
	c := Contents{ClusterID: identity.ClusterId, MemberID: identity.MemberId, Incarnation: identity.Incarnation}
	if c.Revision, err = keyspace.ReadRevision(db); err != nil {
		return Contents{}, err
	}
	if _, err := Load(db, KeyApplied, applied); err != nil {
		return Contents{}, err
	}
	c.Applied = applied.Index
	if err := FlushLogged(db); err != nil {
		return Contents{}, err
	}
	count := func(m *logpb.Lease) bool {
		c.Leases, c.LongestTTL = c.Leases+1, max(c.LongestTTL, time.Duration(m.TtlNs))
		return true
	}
	held := func(string) bool { c.Names++; return true }
	if err := errors.Join(Leases(db, count), Held(db, "", "", held)); err != nil {
		return Contents{}, err
	}
	c.LastIndex, c.LastTerm = applied.Index, applied.Term
	err = entriesFrom(db, LogKey(applied.Index+1), func(e *raftpb.Entry) {
		c.Unapplied, c.LastIndex, c.LastTerm = c.Unapplied+1, e.GetIndex(), e.GetTerm()
	})
	return c, err
}

// refoundClocks makes all instants in the database those of other clocks. They can no longer be compared with others,
// not even on the same machine.
func refoundClocks(db *pebble.DB, batch *pebble.Batch) error {
	domain := new(logpb.Domain)
	if _, err := Load(db, KeyDomain, domain); err != nil {
		return err
	}
	domain.Name = ""
	Put(batch, KeyDomain, domain)
	return nil
}

// refoundLog removes the applied entries, and the vote.
func refoundLog(db *pebble.DB, batch *pebble.Batch) error {
	hard, applied := new(raftpb.HardState), new(logpb.Applied)
	if _, err := Load(db, KeyHardState, hard); err != nil {
		return err
	}
	if _, err := Load(db, KeyApplied, applied); err != nil {
		return err
	}
	hard.Vote = new(uint64)
	end := LogKey(applied.Index + 1)
	if applied.Index == 0 {
		// A member without a state has nothing that it could send to one that joins. So the new log begins after one
		// entry. Entries that a leader sent before this member applied any are lost.
		applied, end = &logpb.Applied{Index: 1, Term: max(1, hard.GetTerm())}, LogEnd
		hard.Term, hard.Commit = new(applied.Term), new(applied.Index)
	}
	Put(batch, KeyHardState, hard)
	Put(batch, KeyApplied, applied)
	Put(batch, KeyTruncated, applied)
	return errors.Join(batch.DeleteRange(LogKey(0), end, nil), voidMembership(db, batch, end))
}

// voidMembership replaces entries that would change the members of the former cluster by entries without commands.
func voidMembership(db *pebble.DB, batch *pebble.Batch, from []byte) error {
	var void error
	err := entriesFrom(db, from, func(e *raftpb.Entry) {
		if e.GetType() == raftpb.EntryNormal {
			return
		}
		// Not empty: an empty entry begins a leadership.
		data, err := proto.Marshal(&logpb.Entry{WallMs: 1})
		void = errors.Join(void, err)
		Put(batch, LogKey(e.GetIndex()), &raftpb.Entry{Index: e.Index, Term: e.Term, Type: raftpb.EntryNormal.Enum(), Data: data})
	})
	return errors.Join(err, void)
}

// entriesFrom calls see with the entries of the log from a key on.
func entriesFrom(db *pebble.DB, from []byte, see func(*raftpb.Entry)) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: LogEnd})
	if err != nil {
		return err
	}
	for valid := it.First(); valid; valid = it.Next() {
		e := new(raftpb.Entry)
		if err := proto.Unmarshal(it.Value(), e); err != nil {
			return errors.Join(&DamagedError{What: fmt.Sprintf("log entry %x cannot be read", it.Key()), Err: err}, it.Close())
		}
		see(e)
	}
	return errors.Join(it.Error(), it.Close())
}

// renewedAtOnce is the number of leases that one batch of renewLeases rewrites.
const renewedAtOnce = 4096

// renewLeases voids the checkpoint of every lease, so that it has its full TTL again. It returns the number of leases
// and the largest TTL.
func renewLeases(db *pebble.DB) (n int, longest time.Duration, err error) {
	batch := db.NewBatch()
	commit := func() {
		err = errors.Join(err, batch.Commit(pebble.NoSync), batch.Close())
	}
	read := Leases(db, func(m *logpb.Lease) bool {
		n, longest = n+1, max(longest, time.Duration(m.TtlNs))
		if m.Checkpointed != nil {
			m.Checkpointed = nil
			Put(batch, LeaseKey(lessor.ID(m.Id)), m)
		}
		if batch.Count() >= renewedAtOnce {
			commit()
			batch = db.NewBatch()
		}
		return err == nil
	})
	commit()
	return n, longest, errors.Join(read, err)
}
