package record

import (
	"encoding/binary"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Format is the version of everything that a member writes into its data directory.
const Format = 2

// First bytes of the keys of a member's records. The keyspace has families of its own: 'v', 'h', 'e' and 'm'.
const (
	FamilyAccess     = 'a' // users, roles and rights, see access.go
	FamilyAudit      = 'u' // number, 8 bytes big endian → logpb.AuditRecord
	FamilyLog        = 'l' // index, 8 bytes big endian → raftpb.Entry
	FamilyRaft       = 'r' // the member's own records, one key each
	FamilyLease      = 't' // lease ID with its sign bit flipped, 8 bytes big endian → logpb.Lease
	FamilyLeadership = 'y' // start position, 8 bytes big endian → logpb.Leadership
	FamilyName       = 'n' // name → logpb.Name
	FamilyRoster     = 'o' // the list of members, one key
	FamilyPast       = 'p' // name, 0, number of the tenure modulo ownership.MaxPast → logpb.Tenure
	FamilyBuffer     = 'd' // number, 8 bytes big endian → records of the families above, see [Buffer]
)

// Keys of the member's own records.
var (
	KeyIdentity  = []byte{FamilyRaft, 'i'} // logpb.Identity
	KeyHardState = []byte{FamilyRaft, 'h'} // raftpb.HardState
	KeyConfState = []byte{FamilyRaft, 'c'} // raftpb.ConfState
	KeyApplied   = []byte{FamilyRaft, 'a'} // logpb.Applied: the last log entry that the state contains
	KeyTruncated = []byte{FamilyRaft, 't'} // logpb.Applied: the last removed log entry
	KeyDomain    = []byte{FamilyRaft, 'd'} // logpb.Domain
	KeyForgotten = []byte{FamilyRaft, 'f'} // logpb.Forgotten
	KeyPromised  = []byte{FamilyRaft, 'p'} // logpb.Promised
	KeyPeers     = []byte{FamilyRaft, 'm'} // logpb.Peers
	KeyTerms     = []byte{FamilyRaft, 's'} // logpb.Terms
	KeyLevel     = []byte{FamilyRaft, 'v'} // logpb.Level
	KeyHoldOff   = []byte{FamilyRaft, 'o'} // logpb.HoldOff: of a restored database, until its hold-off is over
	KeyProgram   = []byte{FamilyRaft, 'w'} // logpb.Program
	KeyRemoved   = []byte{FamilyRaft, 'x'} // empty: the member was removed from its cluster
	KeyNew       = []byte{FamilyRaft, 'n'} // empty: the member is new and not yet part of its cluster
	KeyContacts  = []byte{FamilyRaft, 'j'} // logpb.Roster: the members of the cluster when this member joined it
)

// KeyRoster is the key of logpb.Roster, which all members share. There is none until the members change.
var KeyRoster = []byte{FamilyRoster}

// A Record is a database key and its value.
type Record struct{ Key, Value []byte }

func numbered(family byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 1+8), family), n)
}

// LogKey returns the key of the log entry at an index.
func LogKey(index uint64) []byte { return numbered(FamilyLog, index) }

// LogEnd is greater than the key of every log entry.
var LogEnd = numbered(FamilyLog, math.MaxUint64)

// LeaseKey returns the key of a lease's record. It orders IDs as signed numbers, so negative IDs come first.
func LeaseKey(id lessor.ID) []byte { return numbered(FamilyLease, uint64(id)^(1<<63)) }

// LeadershipKey returns the key of the record of the leadership that began at a position.
func LeadershipKey(start lessor.Position) []byte { return numbered(FamilyLeadership, uint64(start)) }

// NameKey returns the key of a name's record.
func NameKey(name string) []byte {
	return append(append(make([]byte, 0, 1+len(name)), FamilyName), name...)
}

// PastKey returns the key of an ended tenure's record. A tenure overwrites the one [ownership.MaxPast] before it.
func PastKey(name string, number uint64) []byte {
	key := append(append(make([]byte, 0, 1+len(name)+2), FamilyPast), name...)
	return append(key, 0, byte(number%ownership.MaxPast))
}

// Family returns iterator bounds that include all keys of a family.
func Family(f byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{f}, UpperBound: []byte{f + 1}}
}

// CutBytes splits b after its first bytes, which have their length in front.
func CutBytes(b []byte) (cut, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	return b[n : n+int(size)], b[n+int(size):], true
}
