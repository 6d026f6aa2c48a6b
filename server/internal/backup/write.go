package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// bytesPerSecond bounds what a backup reads and writes in a second, so that the member's own writes find the disk free.
const bytesPerSecond = 64 << 20

// write makes the backup with a name, and returns its size.
func (s *Schedule) write(ctx context.Context, name string) (int64, error) {
	if err := s.confirm(ctx); err != nil {
		return 0, fmt.Errorf("the member is not up to date: %w", err)
	}
	before, incarnation := s.cfg.Member.Header(), s.cfg.Member.Incarnation()
	file := s.path(hidden + name + partial)
	size, err := s.copy(ctx, file)
	if err != nil {
		return 0, err
	}
	if s.cfg.written != nil {
		s.cfg.written(file)
	}
	c, err := s.verify(ctx, file, s.path(hidden+name+unpacked))
	if err != nil {
		return 0, fmt.Errorf("the backup could not be verified: %w", err)
	}
	if c.ClusterID != before.ClusterID || c.MemberID != before.MemberID || c.Incarnation != incarnation || c.Revision < before.Revision {
		return 0, fmt.Errorf("the backup is of cluster %016x, member %016x, data directory %016x, revision %d, and the member was %016x, %016x, %016x, %d before it began",
			c.ClusterID, c.MemberID, c.Incarnation, c.Revision, before.ClusterID, before.MemberID, incarnation, before.Revision)
	}
	return size, rename(file, s.path(name), s.cfg.Dir)
}

// confirm returns when this member has everything that was acknowledged before.
func (s *Schedule) confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	for {
		err := s.cfg.Member.Confirm(ctx)
		if err == nil {
			return nil
		}
		if lifetime.Pause(ctx, confirmPause) != nil {
			return err
		}
	}
}

// copy writes a snapshot into a file, and syncs it.
func (s *Schedule) copy(ctx context.Context, path string) (size int64, err error) {
	snapshot, err := s.cfg.Member.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	size = snapshot.Size()
	// To verify it, it is unpacked beside the file.
	need := 2*uint64(size) + s.cfg.MinFree
	if free, known := s.cfg.free(s.cfg.Dir); known && free < need {
		return 0, fmt.Errorf("a backup and its verification need %d free bytes, and there are %d", need, free)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = snapshot.WriteTo(&paced{ctx: ctx, w: f, began: time.Now()})
	if err == nil {
		err = f.Sync()
	}
	return size, errors.Join(err, f.Close())
}

// freeBytes returns the free bytes of a directory's file system, if the system says.
func freeBytes(dir string) (bytes uint64, known bool) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, err == nil
}

// verify reads a backup: its checksum, every record, and every version of every key. It unpacks the backup into a directory,
// which the caller removes.
func (s *Schedule) verify(ctx context.Context, path, dir string) (c record.Contents, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var found record.Contents // c only when the inspection has ended
	err = s.cfg.inspect(ctx, vfs.Default, &pacedReader{f: f, paced: paced{ctx: ctx, began: time.Now()}}, dir, func(db *pebble.DB) (err error) {
		if found, err = record.Describe(db); err != nil {
			return err
		}
		store, err := keyspace.Open(db, nil)
		if err != nil {
			return err
		}
		_, err = store.Hash(ctx)
		return err
	})
	if err != nil {
		return c, err
	}
	return found, nil
}

// rename gives a backup its name, and makes that durable.
func rename(from, to, dir string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d, err := vfs.Default.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// paced is a writer that passes on bytesPerSecond on average, until its context ends.
type paced struct {
	ctx   context.Context
	w     io.Writer
	began time.Time
	bytes int64
}

func (p *paced) Write(b []byte) (int, error) {
	if err := p.pass(len(b)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// pass waits until n more bytes are due.
func (p *paced) pass(n int) error {
	p.bytes += int64(n)
	due := time.Duration(float64(p.bytes) / bytesPerSecond * float64(time.Second))
	if wait := due - time.Since(p.began); wait > 10*time.Millisecond {
		_ = lifetime.Pause(p.ctx, wait) // its error is that of the context, which follows
	}
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return nil
}

// pacedReader reads a file at the same pace.
type pacedReader struct {
	f     *os.File
	paced paced
}

func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.f.Read(b)
	if err != nil {
		return n, err
	}
	return n, r.paced.pass(n)
}

func (r *pacedReader) Seek(offset int64, whence int) (int64, error) { return r.f.Seek(offset, whence) }
