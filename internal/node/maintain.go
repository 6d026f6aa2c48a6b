package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/etcdfile"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// Snapshot makes a copy of the data; see [datadir.TakeSnapshot]. The caller must close it; reading it ends with ctx.
func (n *Node) Snapshot(ctx context.Context) (*datadir.Snapshot, error) {
	ctx, end, err := n.use(ctx)
	if err != nil {
		return nil, err
	}
	return datadir.TakeSnapshot(ctx, n.cfg.FS, n.cfg.Dir, n.db, randomID(), end)
}

// Restored describes the member that Restore made.
type Restored struct {
	ClusterID uint64
	MemberID  uint64
	record.Refounded
}

// RestoreOptions are the parameters of Restore.
type RestoreOptions struct {
	// Now is the time of day. Two clusters that are made from the same data at different seconds issue different tokens.
	Now time.Time
	// RevisionAbove is a revision that no earlier cluster with the data has exceeded; 0: unknown. It is required if the
	// time of day leads to a revision that is not far enough above the data's; see [record.RevisionError].
	RevisionAbove int64
	// HoldOff is for how long, from its first start, the restored member grants no name and ends no lease. Negative: the
	// largest TTL of a lease in the data.
	HoldOff time.Duration
	// DisableAccess leaves access disabled in the new cluster, for operators who have lost the password of root. Users, roles
	// and the audit log stay. The audit log records it.
	DisableAccess bool
	// ImportProgress receives how far Import is; may be nil.
	ImportProgress etcdfile.Progress
	// CopyProgress receives how many bytes of how many Rebuild has copied; may be nil.
	CopyProgress func(copied, size int64)
}

func (o RestoreOptions) refounding() record.Refounding {
	return record.Refounding{
		ClusterID: randomID(), MemberID: randomID(), Incarnation: randomID(),
		Now: o.Now.Unix(), RevisionAbove: o.RevisionAbove, HoldOff: o.HoldOff, DisableAccess: o.DisableAccess,
	}
}

// refound makes the database that of a new cluster, and records in the audit log that it disabled access. After an error the
// database is of no use.
func (o RestoreOptions) refound(db *pebble.DB, c record.Refounding) (record.Refounded, error) {
	refounded, err := record.Refound(db, c)
	if err == nil && refounded.AccessDisabled {
		err = audit.Add(db, audit.Record{Wall: o.Now.UnixMilli(), Act: audit.DisabledByRestore})
	}
	return refounded, err
}

// Restore makes the data directory of a new cluster from a snapshot, as [datadir.Restore] does; see [record.Refound].
func Restore(ctx context.Context, files vfs.FS, snapshot io.ReadSeeker, dir string, o RestoreOptions) (Restored, error) {
	c := o.refounding()
	restored := Restored{ClusterID: c.ClusterID, MemberID: c.MemberID}
	err := datadir.Restore(ctx, files, snapshot, dir, func(db *pebble.DB) (_ gate.Version, err error) {
		restored.Refounded, err = o.refound(db, c)
		return restored.InUse, err
	})
	if err != nil {
		return Restored{}, err
	}
	return restored, nil
}

// ErrLossNotAccepted says that Rebuild has made nothing, because it was not ordered to.
var ErrLossNotAccepted = errors.New("nothing was made")

// Rebuild makes the data directory of a new cluster from that of a stopped member, as [datadir.Rebuild] does; see
// [record.Refound]. It returns what the stopped member has. Without accept it makes nothing, and returns
// [ErrLossNotAccepted].
func Rebuild(ctx context.Context, files vfs.FS, from, dir string, accept bool, o RestoreOptions) (Restored, record.Contents, error) {
	c := o.refounding()
	restored := Restored{ClusterID: c.ClusterID, MemberID: c.MemberID}
	var found record.Contents
	err := datadir.Rebuild(ctx, files, from, dir, o.CopyProgress, func(db *pebble.DB) (_ gate.Version, err error) {
		if found, err = record.Describe(db); err != nil {
			return 0, err
		}
		if !accept {
			return 0, ErrLossNotAccepted
		}
		restored.Refounded, err = o.refound(db, c)
		return restored.InUse, err
	})
	return restored, found, err
}

// InspectSnapshot checks a snapshot and returns what it contains. It unpacks the snapshot into the directory dir, as
// [datadir.Inspect] does.
func InspectSnapshot(ctx context.Context, files vfs.FS, snapshot io.ReadSeeker, dir string) (c record.Contents, err error) {
	err = datadir.Inspect(ctx, files, snapshot, dir, func(db *pebble.DB) (err error) {
		c, err = record.Describe(db)
		return err
	})
	return c, err
}

// logHoldOff logs when the hold-off of a restored member begins and ends. The caller holds owner.
func (n *Node) logHoldOff() {
	left := n.replica.HoldOff()
	switch held := left > 0; {
	case held && !n.heldOff:
		n.log.Warn("the data was restored: no name is granted, and no lease ends, until earlier holders have certainly stopped", "for", left)
	case !held && n.heldOff:
		n.log.Info("the hold-off after the restore is over: names are granted again")
	}
	n.heldOff = left > 0
}

// HashKeys returns a hash of this member's keys at a revision, 0 meaning the current one; see
// [keyspace.Store.HashKeys]. It reads the whole keyspace on the caller's goroutine, and asks no other member.
func (n *Node) HashKeys(ctx context.Context, revision int64) (replica.Header, keyspace.HashResult, error) {
	return n.hash(ctx, func(ctx context.Context) (keyspace.HashResult, error) { return n.store.HashKeys(ctx, revision) })
}

// HashHistory returns a hash of all of this member's keys and their history; see [keyspace.Store.Hash]. Otherwise it is
// like HashKeys.
func (n *Node) HashHistory(ctx context.Context) (replica.Header, keyspace.HashResult, error) {
	return n.hash(ctx, n.store.Hash)
}

func (n *Node) hash(ctx context.Context, read func(context.Context) (keyspace.HashResult, error)) (replica.Header, keyspace.HashResult, error) {
	ctx, release, err := n.use(ctx)
	if err != nil {
		return replica.Header{}, keyspace.HashResult{}, err
	}
	defer release()
	endTurn, err := keyspace.TakeTurn(ctx) // after use, see readKeys
	if err != nil {
		return replica.Header{}, keyspace.HashResult{}, err
	}
	defer endTurn()
	result, err := read(ctx)
	if err != nil {
		return replica.Header{}, keyspace.HashResult{}, err
	}
	return n.Header(), result, nil
}

// Defragment rewrites the database's files without overwritten and deleted data, and returns when that is done. Other
// work goes on meanwhile, more slowly.
//
// It writes before it removes, so it needs about as much free space as there is data. It refuses with
// [replica.ErrNoSpace] where that would use up the reserve. When ctx ends it stops after the pieces that it has
// begun.
func (n *Node) Defragment(ctx context.Context) error {
	ctx, release, err := n.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	space := n.readSpace()
	if space.Free != replica.UnknownFree && space.Free < space.Used+n.cfg.Space.MinFree {
		return fmt.Errorf("%w: to defragment takes %d free bytes and there are %d", replica.ErrNoSpace, space.Used+n.cfg.Space.MinFree, space.Free)
	}
	err = n.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// use holds the database for a call of unknown length. The returned context ends with ctx, or when the member stops.
// The caller must call the returned function.
func (n *Node) use(ctx context.Context) (context.Context, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := n.holdDatabase(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	leave := context.AfterFunc(n.closing, func() { cancel(ErrStopped) })
	return ctx, func() {
		leave()
		cancel(context.Canceled)
		n.releaseDatabase()
	}, nil
}
