package record

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// NewMember says what an empty database is made the database of.
type NewMember struct {
	ClusterID, MemberID, Incarnation uint64 // the ids must not be 0
	// Members are the ids of the cluster's members, MemberID among them; none if there is only this member.
	Members []uint64
	// Joins makes the member one that joins a cluster which exists. Members are none then.
	Joins bool
	// Contacts are the members of the cluster that a member joins; nil if they are not known.
	Contacts *logpb.Roster
	// Promise is the promise to a leader that a member of several counts as having made before.
	Promise time.Duration
}

// Identify reads which member a database belongs to. It makes an empty database that of a new member.
func Identify(db *pebble.DB, fresh NewMember) (*logpb.Identity, error) {
	identity := new(logpb.Identity)
	found, err := Load(db, KeyIdentity, identity)
	if err != nil {
		return nil, err
	}
	if !found {
		if identity, err = fresh.write(db); err != nil {
			return nil, err
		}
	}
	if identity.Format != Format {
		return nil, fmt.Errorf("the data is of format %d and this program knows format %d: "+
			"use the version of leasekeeper that wrote it", identity.Format, Format)
	}
	return identity, nil
}

// EnsurePromise records the length of a promise, unless there is such a record. A member that was alone has none. Once
// another member has a vote, it waits for promises when it starts, also when it is alone again: a leader that has not
// applied that may still count on its promise.
func EnsurePromise(db *pebble.DB, batch *pebble.Batch, length time.Duration) error {
	found, err := Load(db, KeyPromised, new(logpb.Promised))
	if err == nil && !found {
		Put(batch, KeyPromised, &logpb.Promised{LongestNs: int64(length)})
	}
	return err
}

// SetRemoved records, synced, that the member was removed from its cluster.
func SetRemoved(db *pebble.DB) error { return db.Set(KeyRemoved, nil, pebble.Sync) }

// IsRemoved reports whether that was recorded.
func IsRemoved(db *pebble.DB) (bool, error) {
	_, closer, err := db.Get(KeyRemoved)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

// write makes an empty database that of the new member.
func (c NewMember) write(db *pebble.DB) (*logpb.Identity, error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	empty := !it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, err
	}
	if !empty {
		return nil, &DamagedError{What: "the database is not empty but does not say whose it is"}
	}
	if c.ClusterID == 0 || c.MemberID == 0 {
		return nil, errors.New("a new database needs a cluster id and a member id")
	}
	voters := slices.Sorted(slices.Values(c.Members))
	if len(voters) == 0 && !c.Joins {
		voters = []uint64{c.MemberID}
	}
	if c.Joins != (len(voters) == 0) || !c.Joins && !slices.Contains(voters, c.MemberID) || len(slices.Compact(slices.Clone(voters))) != len(voters) || slices.Contains(voters, 0) {
		return nil, fmt.Errorf("a new cluster needs members that differ, this one among them, and not %x with this one %x", voters, c.MemberID)
	}
	identity := &logpb.Identity{
		Format: Format, ClusterId: c.ClusterID, MemberId: c.MemberID, Incarnation: c.Incarnation,
	}
	batch := db.NewBatch()
	Put(batch, KeyIdentity, identity)
	Put(batch, KeyConfState, &raftpb.ConfState{Voters: voters})
	if c.Joins { // its id is new, so no other directory has used it; the list of members will name this directory
		Put(batch, KeyPromised, &logpb.Promised{LongestNs: int64(c.Promise)})
	}
	if c.Contacts != nil {
		Put(batch, KeyContacts, c.Contacts)
	}
	if len(voters) > 1 {
		// A member that is never asked for a longer promise waits for this one when it starts again.
		Put(batch, KeyPromised, &logpb.Promised{LongestNs: int64(c.Promise)})
		if err := batch.Set(KeyNew, nil, nil); err != nil {
			return nil, err
		}
	}
	return identity, batch.Commit(pebble.Sync)
}
