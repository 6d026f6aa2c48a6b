package etcdfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// sector divides the length of every file without a checksum. By that, etcd's tools know whether there is one.
	sector = 512
	// openLimit bounds the wait for another process that has the file open.
	openLimit = time.Second
)

// File is an open database file. It has one user at a time.
type File struct {
	db *bolt.DB
	tx *bolt.Tx
	// Checked: the file ends with a checksum, which was right. A snapshot has one, and the file of a data directory has none.
	Checked bool
}

// Open opens a file and verifies its checksum, if it has one. It reads the file until ctx ends. Progress may be nil. The
// caller closes the File.
func Open(ctx context.Context, path string, progress Progress) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory: name a snapshot, or the file member/snap/db of a data directory of etcd", path)
	}
	if info.Size() < sector {
		return nil, fmt.Errorf("%s is not a database of etcd: it has only %d bytes", path, info.Size())
	}
	checked, err := checkSum(ctx, path, progress)
	if err != nil {
		return nil, err
	}
	f := &File{Checked: checked}
	if err := guarded(func() error { return f.open(path, info.Size()) }); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) open(path string, size int64) (err error) {
	f.db, err = bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: openLimit, NoStatistics: true})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is in use by another process: stop etcd, or take a snapshot of it with `etcdctl snapshot save`", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		return fmt.Errorf("%s is not a database of etcd, or is damaged (%w)", path, err)
	case err != nil:
		return err
	}
	if f.tx, err = f.db.Begin(false); err != nil {
		return err
	}
	if f.tx.Size() > size {
		return damaged("it has %d bytes and should have %d", size, f.tx.Size())
	}
	for _, name := range [][]byte{bucketKeys, bucketMeta, bucketLeases} {
		if f.tx.Bucket(name) == nil {
			return fmt.Errorf("%s is not a database of etcd: it has no bucket %q", path, name)
		}
	}
	if v := f.tx.Bucket(bucketMeta).Get(keyStorageVersion); v != nil && !strings.HasPrefix(string(v), "3.") {
		return fmt.Errorf("%s is of etcd %s, and this program knows etcd 3", path, v)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	var err error
	if f.tx != nil {
		err = f.tx.Rollback()
	}
	if f.db != nil {
		err = errors.Join(err, f.db.Close())
	}
	return err
}

// guarded calls f, which reads a file. bbolt panics if the structure of the file makes no sense, and reads beyond the end
// of a memory map if the file is shorter than it says.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged("its structure makes no sense (%v)", p)
		}
	}()
	return f()
}

// checkSum verifies the checksum at the end of a file. It returns false if there is none.
func checkSum(ctx context.Context, path string, progress Progress) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if err := refuseOwnFormat(f); err != nil {
		return false, err
	}
	if info.Size()%sector != sha256.Size {
		return false, nil
	}
	sum, size := sha256.New(), info.Size()-sha256.Size
	if _, err := io.CopyN(&untilDone{ctx: ctx, w: &counted{w: sum, size: size, progress: progress}}, f, size); err != nil {
		return false, err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(f, want); err != nil {
		return false, err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return false, damaged("its contents do not match its checksum; use another snapshot")
	}
	return true, nil
}

// refuseOwnFormat returns an error if the file is a snapshot of our own. It leaves the file at its beginning.
func refuseOwnFormat(f io.ReadSeeker) error {
	const begins = "VERSION\x00" // a tar archive begins with the name of its first file
	text := make([]byte, len(begins))
	if _, err := io.ReadFull(f, text); err == nil && string(text) == begins {
		return errors.New("this is a snapshot in Leasekeeper's own format: use `leasekeeper snapshot restore`")
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// each calls see with the records of a bucket, in order of keys, until ctx ends.
func (f *File) each(ctx context.Context, bucket []byte, see func(k, v []byte) error) error {
	n := 0
	return f.tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		if n++; n%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return see(k, v)
	})
}

// compacted returns the revision up to which history was removed, or 0.
func (f *File) compacted() int64 {
	var at int64
	for _, name := range [][]byte{keyCompactScheduled, keyCompactFinished} {
		if v := f.tx.Bucket(bucketMeta).Get(name); len(v) >= revisionLen {
			at = max(at, int64(binary.BigEndian.Uint64(v)))
		}
	}
	return at
}
