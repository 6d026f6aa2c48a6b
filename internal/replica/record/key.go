package record

import "encoding/binary"

// Format is the version of everything that a member writes into its data directory.
const Format = 2

// First bytes of the keys of a member's records. The keyspace has families of its own.
const (
	FamilyLog        = 'l' // index, 8 bytes big endian → raftpb.Entry
	FamilyRaft       = 'r' // the member's own records, one key each
	FamilyLease      = 't' // lease id with its sign bit flipped, 8 bytes big endian → logpb.Lease
	FamilyLeadership = 'y' // start position, 8 bytes big endian → logpb.Reign
	FamilyName       = 'n' // name → logpb.Name
	FamilyPast       = 'p' // name, 0, number of the tenure modulo the number of tenures that are kept → logpb.Tenure
)

// Keys of the member's own records that other packages read.
var (
	KeyIdentity  = []byte{FamilyRaft, 'i'} // logpb.Identity
	KeyApplied   = []byte{FamilyRaft, 'a'} // logpb.Applied: the state holds the log up to here
	KeyForgotten = []byte{FamilyRaft, 'f'} // logpb.Forgotten
)

// A Record is a key of the database with its value.
type Record struct{ Key, Value []byte }

// CutBytes takes off bytes with their length in front.
func CutBytes(b []byte) (cut, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	return b[n : n+int(size)], b[n+int(size):], true
}
