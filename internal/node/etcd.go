package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/etcdfile"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// ErrSnapshotUnderWay says that the member does not make a snapshot in etcd's format, because a client is receiving one.
var ErrSnapshotUnderWay = errors.New("another client is receiving a snapshot in etcd's format from this member, which makes one at a time: try again")

// ErrExportsHalted says that the member makes no more snapshots in etcd's format, because the disk failed while it made one.
// What that one used stays in use until the process ends, so the member does not risk another one.
var ErrExportsHalted = errors.New("the disk failed during an earlier snapshot in etcd's format, and this member makes no more of them: repair the disk and restart the server")

// exportMargin is the distance from the reserve of disk space at which an export ends: what it writes between two looks.
const exportMargin = 32 << 20

// EtcdSnapshot is a copy of a member's data in etcd's format. One goroutine uses it, and closes it.
type EtcdSnapshot struct {
	image   *etcdfile.Image
	ctx     context.Context // ends reading
	release func()
}

// EtcdSnapshot makes a copy of the data in etcd's format, see package etcdfile. It writes a temporary file into the data
// directory, from a copy of the database. The file exists until the snapshot is closed. Reading the snapshot ends with ctx.
//
// A member has one such snapshot at a time, and otherwise returns [ErrSnapshotUnderWay]. After the disk failed under one in
// such a way that it cannot be ended, EtcdSnapshot returns [ErrExportsHalted] until the process ends. With
// [replica.ErrNoSpace] it refuses what would use up the reserve of disk space.
func (n *Node) EtcdSnapshot(ctx context.Context, members []etcdfile.Member) (*EtcdSnapshot, error) {
	if !n.exporting.CompareAndSwap(false, true) {
		return nil, ErrSnapshotUnderWay
	}
	release := func() { n.exporting.Store(false) }
	if n.exportsHalted {
		release()
		return nil, ErrExportsHalted
	}
	ctx, end, err := n.use(ctx)
	if err != nil {
		release()
		return nil, err
	}
	s := &EtcdSnapshot{ctx: ctx, release: func() { end(); release() }}
	if s.image, err = n.export(ctx, members); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// export writes the file.
func (n *Node) export(ctx context.Context, members []etcdfile.Member) (*etcdfile.Image, error) {
	// The file is not compressed, unlike the database, and old keys are sorted in the copy.
	if err := n.checkRoom(2*n.readSpace().Used + exportMargin); err != nil {
		return nil, err
	}
	room := func() error { return n.checkRoom(exportMargin) }
	path := n.cfg.FS.PathJoin(n.cfg.Dir, fmt.Sprintf("%s%016x.etcd", datadir.SnapshotPrefix, randomID()))
	w, err := etcdfile.Create(path, room)
	if err != nil {
		return nil, err
	}
	err = datadir.Examine(n.cfg.FS, n.cfg.Dir, n.db, randomID(), func(db *pebble.DB) error {
		return etcdfile.Export(ctx, db, w, members)
	})
	if errors.Is(err, datadir.ErrHalted) {
		// The writer is still in use by Export, and so are its file and memory, until the process ends. The next start
		// removes the file.
		n.exportsHalted = true
		n.log.Error("the disk failed during a snapshot in etcd's format; this member makes no more of them until the server restarts", "error", err)
		return nil, fmt.Errorf("%w (%w)", ErrExportsHalted, err)
	}
	if err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	return w.Image()
}

// checkRoom returns an error if the reserve of disk space would be used up by need more bytes.
func (n *Node) checkRoom(need uint64) error {
	space := n.readSpace()
	if need += n.cfg.Space.MinFree; space.Free != replica.UnknownFree && space.Free < need {
		return fmt.Errorf("%w: a snapshot in etcd's format takes %d free bytes and there are %d", replica.ErrNoSpace, need, space.Free)
	}
	return nil
}

// Size returns the number of bytes that WriteTo writes.
func (s *EtcdSnapshot) Size() int64 { return s.image.Size() }

// WriteTo writes the snapshot.
func (s *EtcdSnapshot) WriteTo(w io.Writer) (int64, error) { return s.image.WriteTo(s.ctx, w) }

// Close removes the file.
func (s *EtcdSnapshot) Close() error {
	defer s.release()
	return s.image.Close()
}

// Import makes the data directory of a new cluster from a database file of etcd; see [etcdfile.Import] and
// [RestoreOptions]. dir must be empty or not exist. If Import fails, dir is empty.
func Import(ctx context.Context, files vfs.FS, path, dir string, o RestoreOptions) (restored Restored, found etcdfile.Imported, err error) {
	f, err := etcdfile.Open(ctx, path, o.ImportProgress)
	if err != nil {
		return Restored{}, etcdfile.Imported{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c := o.refounding()
	restored = Restored{ClusterID: c.ClusterID, MemberID: c.MemberID}
	err = datadir.Create(files, dir, func(db *pebble.DB) (_ gate.Version, err error) {
		if found, err = etcdfile.Import(ctx, f, db, o.ImportProgress); err != nil {
			return 0, err
		}
		restored.Refounded, err = o.refound(db, c)
		return restored.InUse, err
	})
	return restored, found, err
}
