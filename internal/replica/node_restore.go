package replica

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// RevisionStep is how much higher the revision is after a restore than in the snapshot. What was
// acknowledged after the snapshot was made, and is lost, had lower revisions: it would take a year at 30 000
// writes a second to use them up. So no fencing token is given out twice.
const RevisionStep = 1 << 40

// Restored says what Restore made.
type Restored struct {
	ClusterID uint64
	MemberID  uint64
	Revision  int64 // the first that can be read
	Was       int64 // the snapshot's own
}

// Restore makes a data folder from a snapshot. It is that of a new cluster, so that nobody takes it for a
// member of the one that the snapshot is of; all revisions before its own are compacted. dir must be empty or
// not exist. If it fails, what is there is not taken for a data folder.
func Restore(ctx context.Context, files vfs.FS, snapshot io.ReadSeeker, dir string) (Restored, error) {
	if err := checkSnapshot(ctx, snapshot); err != nil {
		return Restored{}, err
	}
	lock, err := emptyFolder(files, dir)
	if err != nil {
		return Restored{}, err
	}
	restored, err := restoreInto(ctx, files, snapshot, dir)
	return restored, errors.Join(err, lock.Close())
}

// checkSnapshot compares the contents with the checksum behind them.
func checkSnapshot(ctx context.Context, snapshot io.ReadSeeker) error {
	size, err := snapshot.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = snapshot.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("the snapshot can not be read: %w", err)
	}
	if size%tarBlock != sha256.Size {
		return errors.New("this is not a snapshot, or it is not complete: its length is not that of one with a checksum")
	}
	sum := sha256.New()
	if _, err := io.CopyN(&counter{w: sum, ctx: ctx}, snapshot, size-sha256.Size); err != nil {
		return fmt.Errorf("the snapshot can not be read: %w", err)
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(snapshot, want); err != nil {
		return fmt.Errorf("the snapshot can not be read: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("the snapshot is damaged: its contents do not match its checksum; use another one")
	}
	_, err = snapshot.Seek(0, io.SeekStart)
	return err
}

func emptyFolder(files vfs.FS, dir string) (*pebble.Lock, error) {
	if dir == "" {
		return nil, errors.New("no data folder is named: say where to restore to")
	}
	names, err := files.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("folder %s can not be read: %w", dir, err)
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("folder %s is not empty: name one that is, or that does not exist", dir)
	}
	if err := files.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the data folder can not be made: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, files)
	if err != nil {
		return nil, fmt.Errorf("data folder %s can not be locked: %w", dir, err)
	}
	return lock, nil
}

func restoreInto(ctx context.Context, files vfs.FS, snapshot io.Reader, dir string) (Restored, error) {
	if err := unpack(ctx, files, snapshot, dir); err != nil {
		return Restored{}, err
	}
	type outcome struct {
		Restored
		err error
	}
	// When the database cannot go on, the goroutine that met with it never comes back.
	done := make(chan outcome, 2)
	go func() {
		restored, err := refound(files, dir, func(err error) { done <- outcome{err: err} })
		done <- outcome{restored, err}
	}()
	out := <-done
	if out.err != nil {
		return Restored{}, folderError(dir, out.err)
	}
	return out.Restored, writeVersion(files, dir) // last: only now is it a data folder
}

// refound opens the database that was unpacked and makes it that of a new cluster.
func refound(files vfs.FS, dir string, halt func(error)) (Restored, error) {
	path := files.PathJoin(dir, databaseDir)
	db, err := openDatabase(path, databaseOptions(files, halt))
	if err != nil {
		return Restored{}, err
	}
	restored, err := rewrite(db)
	if err == nil {
		err = db.Flush()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return Restored{}, err
	}
	return restored, syncDirs(files, path)
}

// unpack writes the files of the database.
func unpack(ctx context.Context, files vfs.FS, snapshot io.Reader, dir string) error {
	if err := files.MkdirAll(files.PathJoin(dir, databaseDir), 0o700); err != nil {
		return err
	}
	archive := tar.NewReader(snapshot)
	for first := true; ; first = false {
		header, err := archive.Next()
		if err == io.EOF && !first {
			return nil
		}
		if err != nil {
			return fmt.Errorf("this is not a snapshot of leasekeeper: %w", err)
		}
		if first {
			if err := checkSnapshotVersion(header, archive); err != nil {
				return err
			}
			continue
		}
		name, ok := strings.CutPrefix(header.Name, databaseDir+"/")
		if !ok || header.Typeflag != tar.TypeReg || name == "" || name != path.Base(name) || strings.Contains(name, `\`) || name == ".." {
			return fmt.Errorf("this is not a snapshot of leasekeeper: it holds %q", header.Name)
		}
		if err := unpackFile(ctx, files, files.PathJoin(dir, databaseDir, name), archive); err != nil {
			return err
		}
	}
}

func checkSnapshotVersion(header *tar.Header, archive io.Reader) error {
	if header.Name != versionFile {
		return fmt.Errorf("this is not a snapshot of leasekeeper: it begins with %q", header.Name)
	}
	text, err := io.ReadAll(io.LimitReader(archive, 1024))
	if err != nil {
		return fmt.Errorf("the snapshot can not be read: %w", err)
	}
	if string(text) != versionText {
		return fmt.Errorf("the snapshot is of another version: it says %q and this program knows %q; "+
			"use the version of leasekeeper that made it", strings.TrimSpace(string(text)), strings.TrimSpace(versionText))
	}
	return nil
}

func unpackFile(ctx context.Context, files vfs.FS, path string, from io.Reader) error {
	f, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("the data folder can not be written to: %w", err)
	}
	_, err = io.Copy(&counter{w: f, ctx: ctx}, from)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s can not be written: %w", path, err)
	}
	return nil
}

// rewrite makes the database that of the only member of a new cluster. The log stays: what of it was not
// applied yet will be, at revisions above the restored one.
func rewrite(db *pebble.DB) (Restored, error) {
	identity := new(logpb.Identity)
	found, err := load(db, keyIdentity, identity)
	if err != nil {
		return Restored{}, err
	}
	if !found || identity.Format != Format {
		return Restored{}, &DamagedError{What: fmt.Sprintf("the snapshot's data is of format %d, not %d", identity.Format, Format)}
	}
	hard := new(raftpb.HardState)
	if _, err := load(db, keyHardState, hard); err != nil {
		return Restored{}, err
	}
	identity.ClusterId, identity.MemberId = randomID(), randomID()
	hard.Vote = new(uint64)
	batch := db.NewBatch()
	// The instants in the snapshot can be compared with nobody's any more, be it on the same machine.
	domain := new(logpb.Domain)
	if _, err := load(db, keyDomain, domain); err != nil {
		return Restored{}, err
	}
	domain.Name = ""
	put(batch, keyDomain, domain)
	put(batch, keyIdentity, identity)
	put(batch, keyHardState, hard)
	put(batch, keyConfState, &raftpb.ConfState{Voters: []uint64{identity.MemberId}})
	remove(batch, keyNew) // there is nobody left to wait for
	was, is, err := keyspace.Skip(db, batch, RevisionStep)
	if err != nil {
		return Restored{}, err
	}
	return Restored{ClusterID: identity.ClusterId, MemberID: identity.MemberId, Revision: is, Was: was}, batch.Commit(pebble.Sync)
}
