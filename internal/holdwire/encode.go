package holdwire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/wire"
)

const (
	// requestBytes is more than a claim or a release takes besides its texts and its holder.
	requestBytes = 64
	// maxVarint is the size of the largest varint.
	maxVarint = 10
)

// RequestRoom returns a size that fits the encoded message if at most a few of its claims carry a holder. It is a hint for
// the size of a buffer.
func RequestRoom(req *leasekeeperv1.HoldRequest) int {
	size := 2*requestBytes + (len(req.Forget)+1)*maxVarint
	for _, r := range req.Releases {
		size += requestBytes + len(r.Name) + len(r.Traceparent)
	}
	for _, c := range req.Claims {
		size += requestBytes + len(c.Name) + len(c.Traceparent)
	}
	return size
}

// AppendRequest appends the encoded message to text. ok is false if package proto refuses the message, because some text in
// it is not UTF-8. The caller then gets the reason from package proto.
func AppendRequest(text []byte, req *leasekeeperv1.HoldRequest) (encoded []byte, ok bool) {
	if text, ok = appendHolder(text, requestHolder, req.Holder); !ok {
		return text, false
	}
	for _, r := range req.Releases {
		if !utf8.ValidString(r.Name) || !utf8.ValidString(r.Traceparent) {
			return text, false
		}
		size := namedSize(r.Number, r.Name, r.Lease) + wire.TextSize(releaseTraceparent, len(r.Traceparent))
		text = wire.AppendEnclosed(text, requestReleases, size)
		text = appendNamed(text, r.Number, r.Name, r.Lease)
		text = wire.AppendText(text, releaseTraceparent, r.Traceparent)
	}
	for _, c := range req.Claims {
		if text, ok = appendClaim(text, c); !ok {
			return text, false
		}
	}
	if len(req.Forget) > 0 {
		size := 0
		for _, number := range req.Forget {
			size += protowire.SizeVarint(number)
		}
		text = wire.AppendEnclosed(text, requestForget, size)
		for _, number := range req.Forget {
			text = protowire.AppendVarint(text, number)
		}
	}
	return text, true
}

func appendClaim(text []byte, c *leasekeeperv1.HoldClaim) (encoded []byte, ok bool) {
	if !utf8.ValidString(c.Name) || !utf8.ValidString(c.Traceparent) {
		return text, false
	}
	size := namedSize(c.Number, c.Name, c.Lease) +
		wire.NumberSize(claimTTL, uint64(c.TtlMs)) + wire.NumberSize(claimWait, protowire.EncodeBool(c.Wait)) +
		wire.NumberSize(claimPriority, uint64(int64(c.Priority))) + wire.TextSize(claimTraceparent, len(c.Traceparent))
	if c.Holder != nil {
		size += wire.EnclosedSize(claimHolder, proto.Size(c.Holder))
	}
	text = wire.AppendEnclosed(text, requestClaims, size)
	text = appendNamed(text, c.Number, c.Name, c.Lease)
	text = wire.AppendNumber(text, claimTTL, uint64(c.TtlMs))
	text = wire.AppendNumber(text, claimWait, protowire.EncodeBool(c.Wait))
	text, ok = appendHolder(text, claimHolder, c.Holder)
	text = wire.AppendNumber(text, claimPriority, uint64(int64(c.Priority)))
	return wire.AppendText(text, claimTraceparent, c.Traceparent), ok
}

// namedSize is the size of what appendNamed appends.
func namedSize(number uint64, name string, lease int64) int {
	return wire.NumberSize(namedNumber, number) + wire.TextSize(namedName, len(name)) + wire.NumberSize(namedLease, uint64(lease))
}

// appendNamed appends the fields that a claim and a release have in common.
func appendNamed(text []byte, number uint64, name string, lease int64) []byte {
	text = wire.AppendNumber(text, namedNumber, number)
	text = wire.AppendText(text, namedName, name)
	return wire.AppendNumber(text, namedLease, uint64(lease))
}

// appendHolder appends a field with a holder, unless it is nil. Holders are rare, so package proto encodes them.
func appendHolder(text []byte, field protowire.Number, h *leasekeeperv1.Holder) (encoded []byte, ok bool) {
	if h == nil {
		return text, true
	}
	text, err := proto.MarshalOptions{}.MarshalAppend(wire.AppendEnclosed(text, field, proto.Size(h)), h)
	return text, err == nil
}
