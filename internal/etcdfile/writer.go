package etcdfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

const (
	// batchBytes and batchRecords bound what one transaction of the file writes. bbolt keeps that in memory.
	batchBytes   = 4 << 20
	batchRecords = 10_000
	// pageSize is that of the file, on every system, so that equal states make equal files.
	pageSize = 4096
	// fill is how full pages are. Records are only appended, so pages need no room for later ones.
	fill = 0.95
)

// Member is a member of the cluster in the file.
type Member struct {
	ID                   uint64
	Name                 string
	PeerURLs, ClientURLs []string
	Learner              bool
}

// Writer makes a file. One goroutine uses it, and ends it with [Writer.Image] or [Writer.Discard].
type Writer struct {
	db      *bolt.DB
	tx      *bolt.Tx
	room    func() error // called before each batch is written
	records int          // of the batch
	bytes   int          // of the batch
	last    revision     // of the last change
}

// Create makes a file at a path where none may be. room is called before each write of a few megabytes; its error ends the
// writing. The file is temporary: it is not synced.
func Create(path string, room func() error) (*Writer, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, &os.PathError{Op: "create", Path: path, Err: os.ErrExist}
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoGrowSync: true, FreelistType: bolt.FreelistMapType, PageSize: pageSize, NoStatistics: true})
	if err != nil {
		return nil, err
	}
	w := &Writer{db: db, room: room}
	if w.tx, err = db.Begin(true); err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	for _, name := range allBuckets {
		if _, err := w.tx.CreateBucket(name); err != nil {
			return nil, errors.Join(err, w.Discard())
		}
	}
	return w, nil
}

// put writes a record, and the batch if it is full. The caller must not change v afterwards: bbolt keeps it.
func (w *Writer) put(bucket, k, v []byte) error {
	b := w.tx.Bucket(bucket)
	b.FillPercent = fill
	if err := b.Put(k, v); err != nil {
		return err
	}
	w.records, w.bytes = w.records+1, w.bytes+len(k)+len(v)
	if w.records < batchRecords && w.bytes < batchBytes {
		return nil
	}
	if err := w.commit(); err != nil {
		return err
	}
	var err error
	w.tx, err = w.db.Begin(true)
	return err
}

// commit writes the batch. There is no batch afterwards.
func (w *Writer) commit() error {
	if err := w.room(); err != nil {
		return err
	}
	tx := w.tx
	w.tx, w.records, w.bytes = nil, 0, 0
	return tx.Commit()
}

// append writes a change. Its revision must not be below that of the change before.
func (w *Writer) append(main int64, deleted bool, kv *mvccpb.KeyValue) error {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(kv)
	if err != nil {
		return err
	}
	return w.appendText(main, deleted, text)
}

// appendText is append with the encoded change, which the caller must not change afterwards.
func (w *Writer) appendText(main int64, deleted bool, text []byte) error {
	at := revision{main: main}
	if main == w.last.main {
		at.sub = w.last.sub + 1
	}
	if w.last.main > 0 && !at.after(w.last) {
		return damaged("revision %d follows %d", main, w.last.main)
	}
	w.last = at
	return w.put(bucketKeys, at.key(deleted), text)
}

func (w *Writer) putLease(l Lease) error { return w.put(bucketLeases, leaseKey(l.ID), l.marshal()) }

// state is what the file has besides keys and leases.
type state struct {
	index, term uint64 // of the last applied log entry
	compacted   int64  // ≤ 0: never
	members     []Member
}

func (w *Writer) state(s state) error {
	conf := confState{}
	for _, m := range s.members {
		if m.Learner {
			conf.Learners = append(conf.Learners, m.ID)
		} else {
			conf.Voters = append(conf.Voters, m.ID)
		}
		record := memberRecord{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.Learner}
		text, err := json.Marshal(record)
		if err == nil {
			err = w.put(bucketMembers, []byte(strconv.FormatUint(m.ID, 16)), text)
		}
		if err != nil {
			return err
		}
	}
	members, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	values := []struct{ name, value []byte }{
		{keyAppliedIndex, number(s.index)}, {keyAppliedTerm, number(s.term)}, {keyConfState, members}, {keyStorageVersion, []byte(StorageVersion)},
	}
	if s.compacted > 0 {
		at := revision{main: s.compacted}.key(false)
		values = append(values, struct{ name, value []byte }{keyCompactScheduled, at}, struct{ name, value []byte }{keyCompactFinished, at})
	}
	for _, v := range values {
		if err := w.put(bucketMeta, v.name, v.value); err != nil {
			return err
		}
	}
	return nil
}

// Image completes the file. The Writer cannot be used afterwards, not even after an error.
func (w *Writer) Image() (*Image, error) {
	if err := w.commit(); err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	tx, err := w.db.Begin(false)
	if err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	return &Image{db: w.db, tx: tx}, nil
}

// Discard removes the file.
func (w *Writer) Discard() error {
	var err error
	if w.tx != nil {
		err = w.tx.Rollback()
	}
	return errors.Join(err, remove(w.db))
}

// remove closes a database and removes its file.
func remove(db *bolt.DB) error {
	path := db.Path() // none after Close
	return errors.Join(db.Close(), os.Remove(path))
}

// Image is a complete file, with its checksum behind it.
type Image struct {
	db *bolt.DB
	tx *bolt.Tx
}

// Size returns the number of bytes that WriteTo writes.
func (i *Image) Size() int64 { return i.tx.Size() + sha256.Size }

// WriteTo writes the file and its checksum, until ctx ends.
func (i *Image) WriteTo(ctx context.Context, w io.Writer) (int64, error) {
	sum := sha256.New()
	out := &untilDone{ctx: ctx, w: w}
	n, err := i.tx.WriteTo(io.MultiWriter(out, sum))
	if err != nil {
		return n, errors.Join(err, context.Cause(ctx))
	}
	m, err := out.Write(sum.Sum(nil))
	return n + int64(m), err
}

// Close removes the file.
func (i *Image) Close() error { return errors.Join(i.tx.Rollback(), remove(i.db)) }

// untilDone is a writer that fails when its context has ended.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u *untilDone) Write(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.w.Write(p)
}
