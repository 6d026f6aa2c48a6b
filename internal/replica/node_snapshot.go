package replica

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A snapshot is a tar archive of a database, with the VERSION of its data folder in front, followed by the
// SHA-256 of all that. Archives are made of blocks of 512 bytes, so the length of a snapshot is 32 more than
// a multiple of that, by which etcd's tools know that the checksum is there.
const (
	snapshotPrefix = "snapshot-" // of folders in the data folder: each is a snapshot being sent
	tarBlock       = 512
)

// A Snapshot is a consistent copy of a member's data at the moment it was made.
type Snapshot struct {
	n     *Node
	ctx   context.Context
	end   func()
	dir   string
	files []snapshotFile
}

type snapshotFile struct {
	name string
	size int64
}

// Snapshot makes a copy of the data. It takes almost no room at first, since files that do not change are
// shared; the longer it is kept the more it takes. It must be closed, and reading it ends with ctx.
func (n *Node) Snapshot(ctx context.Context) (*Snapshot, error) {
	ctx, end, err := n.use(ctx)
	if err != nil {
		return nil, err
	}
	files := n.cfg.FS
	s := &Snapshot{n: n, ctx: ctx, end: end, dir: files.PathJoin(n.cfg.Dir, fmt.Sprintf("%s%016x", snapshotPrefix, randomID()))}
	if err := n.db.Checkpoint(s.dir, pebble.WithFlushedWAL()); err != nil {
		return nil, errors.Join(folderError(n.cfg.Dir, err), s.Close())
	}
	if err := s.list(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Snapshot) list() error {
	names, err := s.n.cfg.FS.List(s.dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := s.n.cfg.FS.Stat(s.n.cfg.FS.PathJoin(s.dir, name))
		if err != nil {
			return err
		}
		s.files = append(s.files, snapshotFile{name, info.Size()})
	}
	return nil
}

// Size returns how many bytes WriteTo writes.
func (s *Snapshot) Size() int64 {
	blocks := func(n int64) int64 { return (n + tarBlock - 1) / tarBlock }
	total := 1 + blocks(int64(len(versionText))) + 2 // the archive ends with two empty blocks
	for _, f := range s.files {
		total += 1 + blocks(f.size)
	}
	return total*tarBlock + sha256.Size
}

// WriteTo writes the snapshot.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	sum := sha256.New()
	out := &counter{w: w, ctx: s.ctx}
	archive := tar.NewWriter(io.MultiWriter(out, sum))
	err := s.archive(archive)
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		_, err = out.Write(sum.Sum(nil))
	}
	return out.n, err
}

func (s *Snapshot) archive(archive *tar.Writer) error {
	if err := writeHeader(archive, versionFile, int64(len(versionText))); err != nil {
		return err
	}
	if _, err := io.WriteString(archive, versionText); err != nil {
		return err
	}
	for _, f := range s.files {
		if err := writeHeader(archive, databaseDir+"/"+f.name, f.size); err != nil {
			return err
		}
		if err := s.copy(archive, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Snapshot) copy(archive *tar.Writer, f snapshotFile) error {
	file, err := s.n.cfg.FS.Open(s.n.cfg.FS.PathJoin(s.dir, f.name), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, f.size)
	return errors.Join(err, file.Close())
}

// writeHeader writes the header of a file, in one block.
func writeHeader(archive *tar.Writer, name string, size int64) error {
	return archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
	})
}

// Close removes the copy.
func (s *Snapshot) Close() error {
	defer s.end()
	return s.n.cfg.FS.RemoveAll(s.dir)
}

// counter counts what it passes on, until its context ends.
type counter struct {
	w   io.Writer
	ctx context.Context
	n   int64
}

func (c *counter) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// removeSnapshots removes what snapshots left behind that were being sent when the process ended.
func removeSnapshots(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, snapshotPrefix) {
			if err := files.RemoveAll(files.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
