package etcdfile

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// StorageVersion is the version of etcd whose format [Export] writes. It is the oldest with the fields that Export sets,
// so that servers of this version and later ones accept the file.
const StorageVersion = "3.6.0"

// The buckets of the file. etcd makes all of them in a new database.
var (
	bucketKeys    = []byte("key")       // revisionKey → mvccpb.KeyValue
	bucketMeta    = []byte("meta")      // the names below
	bucketLeases  = []byte("lease")     // lease ID, 8 bytes big endian → leaseRecord
	bucketMembers = []byte("members")   // member ID in hexadecimal → memberRecord
	bucketAuth    = []byte("auth")      // keyAuthEnabled, keyAuthRevision
	bucketUsers   = []byte("authUsers") // name → authpb.User
	bucketRoles   = []byte("authRoles") // name → authpb.Role

	allBuckets = [][]byte{
		bucketKeys, bucketMeta, bucketLeases, []byte("alarm"), []byte("cluster"), bucketMembers, []byte("members_removed"),
		bucketAuth, bucketUsers, bucketRoles,
	}
)

// The keys of single values.
var (
	keyAppliedIndex     = []byte("consistent_index") // 8 bytes big endian
	keyAppliedTerm      = []byte("term")             // 8 bytes big endian
	keyConfState        = []byte("confState")        // confState as JSON
	keyStorageVersion   = []byte("storageVersion")
	keyCompactScheduled = []byte("scheduledCompactRev") // revisionKey
	keyCompactFinished  = []byte("finishedCompactRev")  // revisionKey
	keyAuthEnabled      = []byte("authEnabled")         // one byte: 1 if it is enabled
	keyAuthRevision     = []byte("authRevision")        // 8 bytes big endian
)

// memberRecord is a member as the file has it, as JSON.
type memberRecord struct {
	ID         uint64   `json:"id"`
	PeerURLs   []string `json:"peerURLs"`
	Learner    bool     `json:"isLearner,omitempty"`
	Name       string   `json:"name,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
}

// confState is raft's list of members as the file has it, as JSON.
type confState struct {
	Voters   []uint64 `json:"voters,omitempty"`
	Learners []uint64 `json:"learners,omitempty"`
	Auto     bool     `json:"auto_leave"`
}

// revision is the place of a change: its revision, and its number among the changes at that revision.
type revision struct{ main, sub int64 }

const (
	revisionLen = 8 + 1 + 8 // main, revisionMark, sub; numbers big endian
	// tombstoneMark follows the revision of a delete.
	tombstoneMark = 't'
	revisionMark  = '_'
)

// key returns the revision as a key of bucketKeys.
func (r revision) key(deleted bool) []byte {
	k := binary.BigEndian.AppendUint64(make([]byte, 0, revisionLen+1), uint64(r.main))
	k = binary.BigEndian.AppendUint64(append(k, revisionMark), uint64(r.sub))
	if deleted {
		k = append(k, tombstoneMark)
	}
	return k
}

func (r revision) after(other revision) bool {
	return r.main > other.main || r.main == other.main && r.sub > other.sub
}

// parseRevision decodes a key of bucketKeys.
func parseRevision(k []byte) (r revision, deleted bool, err error) {
	deleted = len(k) == revisionLen+1 && k[revisionLen] == tombstoneMark
	if len(k) != revisionLen && !deleted || k[8] != revisionMark {
		return revision{}, false, damaged("%x is not a revision", k)
	}
	r.main, r.sub = int64(binary.BigEndian.Uint64(k)), int64(binary.BigEndian.Uint64(k[9:]))
	if r.main < 0 || r.sub < 0 {
		return revision{}, false, damaged("revision %d.%d is negative", r.main, r.sub)
	}
	return r, deleted, nil
}

// Lease is a lease in the file.
type Lease struct {
	ID  int64
	TTL int64 // seconds
}

func leaseKey(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// The fields of the message of a lease. The third, its remaining time, is neither written nor read.
const (
	leaseID  protowire.Number = 1
	leaseTTL protowire.Number = 2
)

func (l Lease) marshal() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, leaseID, protowire.VarintType), uint64(l.ID))
	return protowire.AppendVarint(protowire.AppendTag(b, leaseTTL, protowire.VarintType), uint64(l.TTL))
}

// parseLease decodes a record of bucketLeases.
func parseLease(k, v []byte) (Lease, error) {
	var l Lease
	for len(v) > 0 {
		field, kind, n := protowire.ConsumeTag(v)
		if n < 0 {
			return l, damaged("lease %x cannot be read", k)
		}
		size := protowire.ConsumeFieldValue(field, kind, v[n:])
		if size < 0 {
			return l, damaged("lease %x cannot be read", k)
		}
		if kind == protowire.VarintType {
			number, _ := protowire.ConsumeVarint(v[n:])
			switch field {
			case leaseID:
				l.ID = int64(number)
			case leaseTTL:
				l.TTL = int64(number)
			}
		}
		v = v[n+size:]
	}
	if l.ID == 0 || string(leaseKey(l.ID)) != string(k) {
		return l, damaged("lease %x is recorded under %x", uint64(l.ID), k)
	}
	return l, nil
}

func parseKV(k, v []byte) (*mvccpb.KeyValue, error) {
	kv := new(mvccpb.KeyValue)
	if err := proto.Unmarshal(v, kv); err != nil {
		return nil, damaged("the change at %x cannot be read: %v", k, err)
	}
	return kv, nil
}

// A DamagedError says that a file is not what etcd writes.
type DamagedError struct{ What string }

func (e *DamagedError) Error() string { return "the file is damaged: " + e.What }

func damaged(format string, args ...any) error {
	return &DamagedError{What: fmt.Sprintf(format, args...)}
}
