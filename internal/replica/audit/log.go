package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// Bounds of the log. They are part of the replicated state: all members need the same.
const (
	// MaxRecords is the greatest number of records.
	MaxRecords = 10_000
	// MaxBytes bounds the encoded records together.
	MaxBytes = 4 << 20
)

// Bounds of the texts of one record, in bytes. A longer text is cut.
const (
	maxNameBytes = 256  // user, certificate, address and act
	maxTextBytes = 1024 // object and reason
)

// A Record is one act that was carried out.
type Record struct {
	// Sequence is the number of the record, consecutive from 1.
	Sequence uint64
	// Index is that of the log entry. It orders acts.
	Index uint64
	// Wall is when the leader logged the entry, by its own clock, in milliseconds since 1970; 0 if unknown. It orders nothing.
	Wall int64
	// By is who did it, and from where. Its Revision is not recorded.
	By access.Caller
	Act
}

// A Log is what a member knows of its records. The zero Log is empty. It is not safe for concurrent use.
type Log struct {
	next  uint64 // the number of the next record; 0 counts as 1
	sizes []int  // of the records, oldest first; len ≤ MaxRecords
	bytes int    // the sum of sizes; ≤ MaxBytes
}

// Recover makes the log that of a database.
func (l *Log) Recover(db pebble.Reader) error {
	*l = Log{}
	it, err := db.NewIter(record.Family(record.FamilyAudit))
	if err != nil {
		return err
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		var sequence uint64
		if sequence, err = sequenceOf(it.Key()); err == nil && len(l.sizes) > 0 && sequence != l.next {
			err = &record.DamagedError{What: fmt.Sprintf("record %d of the audit log is missing", l.next)}
		}
		l.next = sequence + 1
		l.sizes, l.bytes = append(l.sizes, len(it.Value())), l.bytes+len(it.Value())
	}
	return errors.Join(err, it.Error(), it.Close())
}

// Append adds a record to the log and to a batch, and drops the oldest records if there are too many. It sets the number of
// the record. If the batch is not committed, the log is of no use.
func (l *Log) Append(b *pebble.Batch, r Record) {
	value := r.encode()
	l.next = max(l.next, 1)
	for len(l.sizes) > 0 && (len(l.sizes) >= MaxRecords || l.bytes+len(value) > MaxBytes) {
		record.Remove(b, key(l.next-uint64(len(l.sizes))))
		l.bytes -= l.sizes[0]
		l.sizes = l.sizes[1:]
	}
	if err := b.Set(key(l.next), value, nil); err != nil {
		panic(fmt.Sprintf("audit: cannot write record %d: %v", l.next, err)) // a batch in memory fails only because of a bug
	}
	l.next++
	l.sizes, l.bytes = append(l.sizes, len(value)), l.bytes+len(value)
}

// Add adds a record to the log in the database of a stopped member, as of its last applied entry.
func Add(db *pebble.DB, r Record) error {
	var log Log
	applied := new(logpb.Applied)
	_, err := record.Load(db, record.KeyApplied, applied)
	if err = errors.Join(err, log.Recover(db)); err != nil {
		return err
	}
	r.Index = applied.Index
	batch := db.NewBatch()
	log.Append(batch, r)
	return errors.Join(batch.Commit(pebble.Sync), batch.Close())
}

func key(sequence uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{record.FamilyAudit}, sequence)
}

func sequenceOf(key []byte) (uint64, error) {
	if len(key) != 1+8 {
		return 0, &record.DamagedError{What: fmt.Sprintf("record %x of the audit log has no number", key)}
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

func (r Record) encode() []byte {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(&logpb.AuditRecord{
		Index: r.Index, WallMs: r.Wall, User: cut(r.By.User, maxNameBytes), Certificate: cut(r.By.Origin.Certificate, maxNameBytes),
		Address: cut(r.By.Origin.Address, maxNameBytes), Act: cut(r.Name, maxNameBytes),
		Object: cut(r.Object, maxTextBytes), Reason: cut(r.Reason, maxTextBytes),
	})
	if err != nil {
		panic(fmt.Sprintf("audit: cannot encode a record: %v", err))
	}
	return value
}

// cut returns a text of at most a number of bytes, as valid UTF-8. A text that was cut ends with an ellipsis.
func cut(text string, most int) []byte {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		const ellipsis = "…"
		text = strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis
	}
	return []byte(text)
}

// A Query says which records [Read] returns.
type Query struct {
	After uint64 // only records with a greater number
	Limit int    // at most as many; more than 0
	Bytes int    // a page ends when its records have as many bytes; more than 0
	User  string // only records of this user; empty: of all
	Since int64  // only records of this time or a later one, in milliseconds since 1970
	// ObjectPrefix is for only the records whose object begins with it; empty: all.
	ObjectPrefix string
}

// A Page is what [Read] returns.
type Page struct {
	Records []Record // oldest first
	After   uint64   // the After of the next page
	More    bool     // there may be further records
}

// Read reads records from a database.
func Read(db pebble.Reader, q Query) (p Page, err error) {
	bounds := record.Family(record.FamilyAudit)
	if q.After++; q.After == 0 {
		return Page{After: q.After - 1}, nil
	}
	bounds.LowerBound = key(q.After)
	p.After = q.After - 1
	it, err := db.NewIter(bounds)
	if err != nil {
		return Page{}, err
	}
	size := 0
	for it.First(); it.Valid(); it.Next() {
		if p.More = len(p.Records) >= q.Limit || size >= q.Bytes; p.More {
			break
		}
		var r Record
		if r, err = decode(it.Key(), it.Value()); err != nil {
			break
		}
		p.After = r.Sequence
		if q.wants(r) {
			p.Records, size = append(p.Records, r), size+len(it.Value())
		}
	}
	return p, errors.Join(err, it.Error(), it.Close())
}

func (q Query) wants(r Record) bool {
	return (q.User == "" || r.By.User == q.User) && r.Wall >= q.Since && strings.HasPrefix(r.Object, q.ObjectPrefix)
}

func decode(key, value []byte) (Record, error) {
	sequence, err := sequenceOf(key)
	if err != nil {
		return Record{}, err
	}
	m := new(logpb.AuditRecord)
	if err := proto.Unmarshal(value, m); err != nil {
		return Record{}, &record.DamagedError{What: fmt.Sprintf("record %d of the audit log cannot be read", sequence), Err: err}
	}
	return Record{
		Sequence: sequence, Index: m.Index, Wall: m.WallMs,
		By:  access.Caller{User: string(m.User), Origin: access.Origin{Certificate: string(m.Certificate), Address: string(m.Address)}},
		Act: Act{string(m.Act), string(m.Object), string(m.Reason)},
	}, nil
}
