package datadir

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A snapshot is a tar archive of a data directory's VERSION file and its database, followed by the SHA-256 of the
// archive. An archive consists of blocks of 512 bytes, so a snapshot's length is 32 more than a multiple of tarBlock.
// By that length etcd's tools know that there is a checksum.
const tarBlock = 512

// A Snapshot is a consistent copy of a member's data at the moment it was made.
type Snapshot struct {
	fs      vfs.FS
	ctx     context.Context // ends reading
	release func()          // called by Close
	dir     string
	version string // the text of the version file
	files   []snapshotFile
}

type snapshotFile struct {
	name string
	size int64
}

// TakeSnapshot copies the database of a data directory. The copy shares unchanged files with the database, so it
// takes little space at first, and more the longer it exists. id names its directory and must be random.
//
// Reading the snapshot ends with ctx. The caller must close it even then; Close calls release. After an error
// TakeSnapshot has called release.
func TakeSnapshot(ctx context.Context, files vfs.FS, dir string, db *pebble.DB, id uint64, release func()) (*Snapshot, error) {
	s := &Snapshot{fs: files, ctx: ctx, release: release, dir: copyPath(files, dir, id)}
	if err := db.Checkpoint(s.dir, pebble.WithFlushedWAL()); err != nil {
		return nil, errors.Join(Explain(dir, err), s.Close())
	}
	if err := s.list(dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Examine copies the database of a data directory, calls look with the copy, and removes the copy. id names the copy's
// directory and must be random. look runs in a goroutine of its own and may write to the copy, but not synced. It has returned
// when Examine returns, except with [ErrHalted].
func Examine(files vfs.FS, dir string, db *pebble.DB, id uint64, look func(*pebble.DB) error) (err error) {
	path := copyPath(files, dir, id)
	defer func() { err = errors.Join(err, files.RemoveAll(path)) }()
	if err := db.Checkpoint(path, pebble.WithFlushedWAL()); err != nil {
		return Explain(dir, err)
	}
	return lookInto(files, path, look)
}

// copyPath returns the path of a copy. [Open] removes what an earlier process left there.
func copyPath(files vfs.FS, dir string, id uint64) string {
	return files.PathJoin(dir, fmt.Sprintf("%s%016x", SnapshotPrefix, id))
}

// list reads the names of the copied files, and the version of the data directory.
func (s *Snapshot) list(dir string) (err error) {
	if s.version, err = readVersion(s.fs, dir); err != nil {
		return err
	}
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := s.fs.Stat(s.fs.PathJoin(s.dir, name))
		if err != nil {
			return err
		}
		s.files = append(s.files, snapshotFile{name, info.Size()})
	}
	return nil
}

// Size returns the number of bytes that WriteTo writes.
func (s *Snapshot) Size() int64 {
	blocks := func(n int64) int64 { return (n + tarBlock - 1) / tarBlock }
	total := 1 + blocks(int64(len(s.version))) + 2 // the archive ends with two empty blocks
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
	if err := writeHeader(archive, VersionFile, int64(len(s.version))); err != nil {
		return err
	}
	if _, err := io.WriteString(archive, s.version); err != nil {
		return err
	}
	for _, f := range s.files {
		if err := writeHeader(archive, DatabaseDir+"/"+f.name, f.size); err != nil {
			return err
		}
		if err := s.copy(archive, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Snapshot) copy(archive *tar.Writer, f snapshotFile) error {
	file, err := s.fs.Open(s.fs.PathJoin(s.dir, f.name), vfs.SequentialReadsOption)
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

// Close removes the copy and calls release.
func (s *Snapshot) Close() error {
	defer s.release()
	return s.fs.RemoveAll(s.dir)
}

// counter is a writer that counts bytes, until its context ends.
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
