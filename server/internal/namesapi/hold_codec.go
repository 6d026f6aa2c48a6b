package namesapi

import (
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// Unmarshal reads plain claims and releases in a shorter way than gRPC's own codec, and into those that were read before: a
// reader is done with a message when it reads the next into the same. There may be tens of thousands a second. It returns
// false for any other message; then gRPC's own codec must read it.
func Unmarshal(data mem.BufferSlice, v any) bool {
	req, ok := v.(*leasekeeperv1.HoldRequest)
	if !ok {
		return false
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return readHold(buf.ReadOnlyData(), req)
}

// Fields with their kinds, as they stand before what they hold. Claims and releases have theirs in common.
const (
	releasesTag = 2<<3 | byte(protowire.BytesType)
	claimsTag   = 3<<3 | byte(protowire.BytesType)

	numberTag = 1<<3 | byte(protowire.VarintType)
	nameTag   = 2<<3 | byte(protowire.BytesType)
	leaseTag  = 3<<3 | byte(protowire.VarintType)
	ttlTag    = 4<<3 | byte(protowire.VarintType)
	waitTag   = 5<<3 | byte(protowire.VarintType)
)

const (
	// maxReusedRequests bounds what a message keeps to be read into again, so that one that was large once
	// does not stay so.
	maxReusedRequests = 64
	// maxSharedText is how long a message may be whose names are all cut out of one copy of it. A name that is
	// kept keeps the copy.
	maxSharedText = 1 << 10
)

// readHold reads a message that is plain: it has claims and releases, and none says who makes it. Else it returns
// false, and what it has read is void.
func readHold(b []byte, req *leasekeeperv1.HoldRequest) bool {
	releases, claims := reused(req.Releases), reused(req.Claims)
	req.Reset()
	text := holdText{b: b}
	if len(b) <= maxSharedText {
		text.shared = string(b)
	}
	for text.at < len(b) {
		tag := b[text.at]
		text.at++
		size, ok := text.varint(len(b))
		if !ok || size > uint64(len(b)-text.at) {
			return false
		}
		end := text.at + int(size)
		switch tag {
		case releasesTag:
			var r *leasekeeperv1.HoldRelease
			releases, r = another(releases)
			var p plainRequest
			if p, ok = text.request(end, leaseTag); ok {
				r.Number, r.Name, r.Lease = p.number, p.name, p.lease
			}
		case claimsTag:
			var c *leasekeeperv1.HoldClaim
			claims, c = another(claims)
			var p plainRequest
			if p, ok = text.request(end, waitTag); ok {
				c.Number, c.Name, c.Lease, c.TtlMs, c.Wait = p.number, p.name, p.lease, p.ttlMs, p.wait
			}
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	req.Releases, req.Claims = releases, claims
	return true
}

// reused returns what was read before, emptied. What is behind its end was emptied earlier.
func reused[M interface{ Reset() }](all []M) []M {
	if cap(all) > maxReusedRequests {
		return nil
	}
	for _, m := range all {
		m.Reset()
	}
	return all[:0]
}

// another appends one that is empty.
func another[T any](all []*T) ([]*T, *T) {
	if len(all) < cap(all) {
		all = all[:len(all)+1]
	} else {
		all = append(all, nil)
	}
	last := &all[len(all)-1]
	if *last == nil {
		*last = new(T)
	}
	return all, *last
}

// plainRequest is a claim or a release.
type plainRequest struct {
	number       uint64
	name         string
	lease, ttlMs int64
	wait         bool
}

// holdText is a message being read.
type holdText struct {
	b      []byte
	at     int    // what is before it was read
	shared string // a copy of b, "" if that is too long
}

// request reads up to end what has fields up to that of last. It is false for all that is not plain, and for what
// makes no sense: gRPC's own codec has the words for that.
func (t *holdText) request(end int, last byte) (p plainRequest, ok bool) {
	for t.at < end {
		tag := t.b[t.at]
		t.at++
		if tag > last {
			return p, false
		}
		v, ok := t.varint(end)
		if !ok {
			return p, false
		}
		switch tag {
		case numberTag:
			p.number = v
		case nameTag:
			if p.name, ok = t.name(v, end); !ok {
				return p, false
			}
		case leaseTag:
			p.lease = int64(v)
		case ttlTag:
			p.ttlMs = int64(v)
		case waitTag:
			p.wait = protowire.DecodeBool(v)
		default:
			return p, false
		}
	}
	return p, true
}

func (t *holdText) varint(end int) (uint64, bool) {
	v, n := protowire.ConsumeVarint(t.b[t.at:end])
	t.at += max(n, 0)
	return v, n > 0
}

func (t *holdText) name(size uint64, end int) (string, bool) {
	if size > uint64(end-t.at) {
		return "", false
	}
	from := t.at
	t.at += int(size)
	name := ""
	if t.shared != "" {
		name = t.shared[from:t.at]
	} else {
		name = string(t.b[from:t.at])
	}
	return name, utf8.ValidString(name)
}
