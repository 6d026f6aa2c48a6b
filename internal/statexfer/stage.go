package statexfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

const (
	// stagedBytes is the size at which a staged file is complete.
	stagedBytes = 64 << 20
	// bottomLevel is the level at which the database adds tables that replace everything.
	bottomLevel = 6
)

// A Receipt identifies the receiver of a state.
type Receipt struct {
	ClusterID uint64
	// Domain is the number of the receiver's clock domain in its database.
	Domain uint32
	// Now reads the receiver's clocks.
	Now func() clock.Instant
}

// A Staged is a whole state of another member, in files in the data directory; see [Install].
type Staged struct {
	// Index and Term are those of the last log entry that the state contains.
	Index, Term uint64

	files  vfs.FS
	dir    string
	tables []string
	own    []record.Record // those of the sender's own records that members share
}

// Stage reads a state that [Write] wrote into files, in a new directory within dir. id names that directory and must
// be random. Its memory does not grow with the state.
//
// The state contains instants of the sender's clocks. Stage replaces them by the instants of arrival on the
// receiver's clocks.
//
// After an error Stage leaves nothing behind. [datadir.Open] removes what a crash leaves behind.
func Stage(ctx context.Context, files vfs.FS, dir string, id uint64, state io.Reader, to Receipt) (*Staged, error) {
	p := &stateParser{from: state}
	header, err := p.header()
	if err != nil {
		return nil, err
	}
	switch {
	case header.Format != record.Format:
		return nil, errBadState("its records are of format %d and this program knows format %d: use versions of leasekeeper that are next to each other", header.Format, record.Format)
	case header.ClusterId != to.ClusterID:
		return nil, errBadState("it is of another cluster: of %x, and this member belongs to %x; see that the members have different addresses", header.ClusterId, to.ClusterID)
	case header.Index == 0 || header.Term == 0:
		return nil, errBadState("it is of no log entry")
	}
	s := &Staged{
		Index: header.Index, Term: header.Term,
		files: files, dir: files.PathJoin(dir, fmt.Sprintf("%s%016x", datadir.StagedPrefix, id)),
	}
	if err := files.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("a state of another member cannot be written: %w", err)
	}
	w := &tableWriter{files: files, dir: s.dir, name: "state"}
	err = p.each(func(key, value []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return s.take(w, key, value, to)
	})
	if err = errors.Join(err, w.finish()); err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	s.tables = w.tables
	return s, nil
}

// take writes a record of the sender.
func (s *Staged) take(w *tableWriter, key, value []byte, to Receipt) error {
	value, err := to.own(key, value)
	if err != nil {
		return err
	}
	if sharedOwn(key) { // it belongs into the table of the receiver's own records
		s.own = append(s.own, record.Record{Key: bytes.Clone(key), Value: bytes.Clone(value)})
		return nil
	}
	return w.add(key, value)
}

// Check returns an error if the state does not belong to a snapshot.
func (s *Staged) Check(snapshot *raftpb.Snapshot) error {
	if index, term := snapshot.GetMetadata().GetIndex(), snapshot.GetMetadata().GetTerm(); index != s.Index || term != s.Term {
		return errBadState("it is of entry %d of term %d, and its message speaks of entry %d of term %d", s.Index, s.Term, index, term)
	}
	return nil
}

// Discard removes the files. Further calls do nothing.
func (s *Staged) Discard() error { return s.files.RemoveAll(s.dir) }

// tableWriter writes records, in ascending order of keys, into tables. No table spans two families, so that the
// tables of the member's own records fit between them.
type tableWriter struct {
	files     vfs.FS
	dir, name string
	tables    []string
	table     *sstable.Writer // nil if no table is open
	family    byte            // of its keys
}

func (w *tableWriter) add(key, value []byte) error {
	if w.table != nil && (key[0] != w.family || w.table.Raw().EstimatedSize() >= stagedBytes) {
		if err := w.finish(); err != nil {
			return err
		}
	}
	if w.table == nil {
		path := w.files.PathJoin(w.dir, fmt.Sprintf("%s-%06d.sst", w.name, len(w.tables)))
		f, err := w.files.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		options := &pebble.Options{FormatMajorVersion: pebble.FormatNewest}
		options.EnsureDefaults()
		w.table = sstable.NewWriter(objstorageprovider.NewFileWritable(f),
			options.MakeWriterOptions(bottomLevel, pebble.FormatNewest.MaxTableFormat()))
		w.tables, w.family = append(w.tables, path), key[0]
	}
	return w.table.Set(key, value)
}

// finish completes and syncs the open table.
func (w *tableWriter) finish() error {
	if w.table == nil {
		return nil
	}
	err := w.table.Close()
	w.table = nil
	return err
}

// own returns a record as the receiver would have written it: with the instant of arrival on the receiver's clocks.
// That instant is later than the sender's, so no lease ends early.
func (to Receipt) own(key, value []byte) ([]byte, error) {
	switch key[0] {
	case record.FamilyLease:
		m := new(logpb.Lease)
		return to.rewrite(key, value, m, func() {
			if c := m.Checkpointed; c != nil {
				c.Applied, c.Domain = to.instant(), to.Domain
			}
		})
	case record.FamilyLeadership:
		m := new(logpb.Leadership)
		return to.rewrite(key, value, m, func() { m.Applied, m.Domain = to.instant(), to.Domain })
	}
	if bytes.Equal(key, record.KeyHoldOff) {
		m := new(logpb.HoldOff)
		return to.rewrite(key, value, m, func() { m.Began, m.Domain = to.instant(), to.Domain })
	}
	return value, nil
}

func (to Receipt) instant() *logpb.Instant {
	now := to.Now()
	return &logpb.Instant{RawNs: now.Raw, BootNs: now.Boot}
}

func (to Receipt) rewrite(key, value []byte, m proto.Message, change func()) ([]byte, error) {
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, errBadState("record %x cannot be read: %v", key, err)
	}
	change()
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Install replaces a member's state by a staged one. When it returns nil, the database durably holds the received
// state and the member's own records, as they were or as given in changed.
//
// If the process dies before, either all of that has happened or nothing. After an error it is unknown which of the
// two. All earlier writes must have been committed, synced or not, and nothing may write meanwhile.
func Install(ctx context.Context, db *pebble.DB, staged *Staged, changed []record.Record) error {
	own, err := ownRecords(db, changed, staged.own)
	if err != nil {
		return err
	}
	tables, err := staged.addOwn(own)
	if err != nil {
		return fmt.Errorf("the member's own records cannot be written: %w", err)
	}
	// Flush memory and the write-ahead log into files. IngestAndExcise then removes these files as a whole, so the
	// next start finds no old write to replay.
	if err := db.Flush(); err != nil {
		return err
	}
	everything := pebble.KeyRange{Start: []byte{0}, End: []byte{0xff}}
	if _, err := db.IngestAndExcise(ctx, tables, nil, nil, everything); err != nil {
		return fmt.Errorf("the state of another member cannot replace this member's own: %w", err)
	}
	_ = staged.Discard() // an empty directory, which the next start also removes
	return nil
}

// ownRecords returns the member's own records after the installation, in order of keys, together with those
// that the sender shares.
func ownRecords(db *pebble.DB, changed, sent []record.Record) ([]record.Record, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{record.FamilyRaft}, UpperBound: []byte{record.FamilyRaft + 1}})
	if err != nil {
		return nil, err
	}
	var records []record.Record
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		if !sharedOwn(it.Key()) {
			records = append(records, record.Record{Key: bytes.Clone(it.Key()), Value: bytes.Clone(value)})
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, err
	}
	records = append(records, sent...)
	records = append(slices.Clone(changed), records...) // the first of two with the same key is kept
	byKey := func(a, b record.Record) int { return bytes.Compare(a.Key, b.Key) }
	slices.SortStableFunc(records, byKey)
	return slices.CompactFunc(records, func(a, b record.Record) bool { return byKey(a, b) == 0 }), nil
}

// addOwn writes the member's own records into tables of their own, and returns the paths of all tables.
func (s *Staged) addOwn(records []record.Record) ([]string, error) {
	w := &tableWriter{files: s.files, dir: s.dir, name: "own"}
	for _, own := range records {
		if own.Key[0] != record.FamilyLog && own.Key[0] != record.FamilyRaft {
			return nil, fmt.Errorf("statexfer: %q is not a member's own record", own.Key)
		}
		if err := w.add(own.Key, own.Value); err != nil {
			return nil, errors.Join(err, w.finish())
		}
	}
	err := w.finish()
	return slices.Concat(s.tables, w.tables), err
}
