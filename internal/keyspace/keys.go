package keyspace

import (
	"bytes"
	"encoding/binary"
)

// The first byte of every database key of this package. Other first bytes belong to other packages.
const (
	FamilyVersions = 'v'
	FamilyHistory  = 'h'
	FamilyEnded    = 'e'
	FamilyMeta     = 'm'
)

var (
	metaRevision = []byte{FamilyMeta, 'r'}
	metaCompact  = []byte{FamilyMeta, 'c'}
	metaTrimmed  = []byte{FamilyMeta, 't'}
)

// A user key is encoded with 0x00 as 0x00 0xFF, and ends with 0x00 0x01. So no encoded key is a prefix of another.
// Encoded keys sort like the keys themselves, even with a revision after them.
const (
	escape     = 0x00
	escapedNul = 0xFF
	terminator = 0x01
)

const revisionLen = 8

// appendVersionPrefix appends the common prefix of all versions of a key.
func appendVersionPrefix(dst, key []byte) []byte {
	dst = append(dst, FamilyVersions)
	for {
		i := bytes.IndexByte(key, escape)
		if i < 0 {
			break
		}
		dst = append(dst, key[:i]...)
		dst = append(dst, escape, escapedNul)
		key = key[i+1:]
	}
	dst = append(dst, key...)
	return append(dst, escape, terminator)
}

// appendVersionKey appends the database key of one version. The revision is complemented, so that a seek finds the
// newest version at or below a revision.
func appendVersionKey(dst, key []byte, rev Revision) []byte {
	dst = appendVersionPrefix(dst, key)
	return binary.BigEndian.AppendUint64(dst, ^uint64(rev))
}

// pastPrefix changes a version prefix, in place, into the least database key after all versions of that key. The
// bytes 0x00 0x02 occur in no encoded key.
func pastPrefix(prefix []byte) []byte {
	prefix[len(prefix)-1] = terminator + 1
	return prefix
}

// splitVersionKey splits the database key of a version into the prefix of the key's versions and the revision.
func splitVersionKey(k []byte) (prefix []byte, rev Revision, err error) {
	const least = 1 + 2 + revisionLen
	if len(k) < least || k[0] != FamilyVersions {
		return nil, 0, corrupt(k, "not the key of a version")
	}
	n := len(k) - revisionLen
	rev = int64(^binary.BigEndian.Uint64(k[n:]))
	if rev <= 0 || k[n-2] != escape || k[n-1] != terminator {
		return nil, 0, corrupt(k, "not the key of a version")
	}
	return k[:n], rev, nil
}

// userKey decodes a version prefix. The result may share memory with it.
func userKey(prefix []byte) ([]byte, error) {
	body := prefix[1 : len(prefix)-2]
	if bytes.IndexByte(body, escape) < 0 {
		return body, nil
	}
	key := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		key = append(key, body[i])
		if body[i] != escape {
			continue
		}
		if i++; i == len(body) || body[i] != escapedNul {
			return nil, corrupt(prefix, "0x00 not followed by 0xFF in a key")
		}
	}
	return key, nil
}

// appendHistoryKey appends the database key of an event, or of a record whose last event it is.
func appendHistoryKey(dst []byte, rev Revision, sub uint32) []byte {
	dst = append(dst, FamilyHistory)
	dst = binary.BigEndian.AppendUint64(dst, uint64(rev))
	return binary.BigEndian.AppendUint32(dst, sub)
}

func splitHistoryKey(k []byte) (rev Revision, sub uint32, err error) {
	if len(k) != 1+revisionLen+4 || k[0] != FamilyHistory {
		return 0, 0, corrupt(k, "not the key of an event")
	}
	rev = int64(binary.BigEndian.Uint64(k[1:]))
	if rev <= 0 {
		return 0, 0, corrupt(k, "revision %d of an event", rev)
	}
	return rev, binary.BigEndian.Uint32(k[1+revisionLen:]), nil
}

func appendEndedKey(dst []byte, generation uint64) []byte {
	dst = append(dst, FamilyEnded)
	return binary.BigEndian.AppendUint64(dst, generation)
}

func splitEndedKey(k []byte) (generation uint64, err error) {
	if len(k) != 1+8 || k[0] != FamilyEnded {
		return 0, corrupt(k, "not the key of an ended lease")
	}
	if generation = binary.BigEndian.Uint64(k[1:]); generation == 0 {
		return 0, corrupt(k, "generation 0")
	}
	return generation, nil
}

// appendSeekRevision returns the database key to seek for the newest version up to rev. It copies prefix.
func appendSeekRevision(prefix []byte, rev Revision) []byte {
	k := make([]byte, 0, len(prefix)+revisionLen)
	k = append(k, prefix...)
	return binary.BigEndian.AppendUint64(k, ^uint64(rev))
}
