package remote

import (
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// Fields of a request by their numbers in the service's definition. Those of a release are among those of a claim.
const (
	requestHolderField = 1
	releasesField      = 2
	claimsField        = 3
	forgetField        = 4

	demandNumberField = 1
	demandNameField   = 2
	demandLeaseField  = 3
	demandTTLField    = 4
	demandWaitField   = 5
	demandHolderField = 6
)

// Marshal implements [encoding.CodecV2].
func (c holdCodec) Marshal(v any) (mem.BufferSlice, error) {
	req, ok := v.(*leasekeeperv1.HoldRequest)
	if !ok || !utf8Only(req) {
		return c.CodecV2.Marshal(v)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(max(requestRoom(req), leastBuffer))
	var err error
	if *buf, err = appendRequest((*buf)[:0], req); err != nil {
		pool.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// leastBuffer is more than what gRPC does not take back to be used again.
const leastBuffer = 2 << 10

// utf8Only says whether all names are as the wire wants them. With others gRPC's own codec says what is wrong.
func utf8Only(req *leasekeeperv1.HoldRequest) bool {
	for _, r := range req.Releases {
		if !utf8.ValidString(r.Name) {
			return false
		}
	}
	for _, c := range req.Claims {
		if !utf8.ValidString(c.Name) {
			return false
		}
	}
	return true
}

// requestRoom returns at least how many bytes a request takes, if holders are few.
func requestRoom(req *leasekeeperv1.HoldRequest) int {
	size := demandBytes + (len(req.Forget)+1)*maxVarint
	for _, r := range req.Releases {
		size += demandBytes + len(r.Name)
	}
	for _, c := range req.Claims {
		size += demandBytes + len(c.Name)
	}
	return size
}

// maxVarint is the most that a number takes.
const maxVarint = 10

// appendRequest appends a request to b, in the order of the fields, as gRPC's own codec does. It knows all fields
// that there are, and no others: the request was made here.
func appendRequest(b []byte, req *leasekeeperv1.HoldRequest) ([]byte, error) {
	var err error
	if req.Holder != nil {
		if b, err = appendMessage(b, requestHolderField, req.Holder); err != nil {
			return b, err
		}
	}
	for _, r := range req.Releases {
		b = openPart(b, releasesField, sizeDemand(r.Number, r.Name, r.Lease))
		b = appendDemand(b, r.Number, r.Name, r.Lease)
	}
	for _, c := range req.Claims {
		if b, err = appendClaim(b, c); err != nil {
			return b, err
		}
	}
	if len(req.Forget) > 0 {
		size := 0
		for _, number := range req.Forget {
			size += protowire.SizeVarint(number)
		}
		b = openPart(b, forgetField, size)
		for _, number := range req.Forget {
			b = protowire.AppendVarint(b, number)
		}
	}
	return b, nil
}

func appendClaim(b []byte, c *leasekeeperv1.HoldClaim) (_ []byte, err error) {
	size := sizeDemand(c.Number, c.Name, c.Lease) + sizeNumber(uint64(c.TtlMs)) + sizeNumber(protowire.EncodeBool(c.Wait))
	if c.Holder != nil {
		size += 1 + protowire.SizeBytes(proto.Size(c.Holder))
	}
	b = appendDemand(openPart(b, claimsField, size), c.Number, c.Name, c.Lease)
	b = appendNumber(b, demandTTLField, uint64(c.TtlMs))
	b = appendNumber(b, demandWaitField, protowire.EncodeBool(c.Wait))
	if c.Holder != nil {
		b, err = appendMessage(b, demandHolderField, c.Holder)
	}
	return b, err
}

// sizeDemand returns how many bytes appendDemand appends.
func sizeDemand(number uint64, name string, lease int64) int {
	size := sizeNumber(number) + sizeNumber(uint64(lease))
	if name != "" {
		size += 1 + protowire.SizeBytes(len(name))
	}
	return size
}

// appendDemand appends what a claim and a release have in common.
func appendDemand(b []byte, number uint64, name string, lease int64) []byte {
	b = appendNumber(b, demandNumberField, number)
	if name != "" {
		b = append(openPart(b, demandNameField, len(name)), name...)
	}
	return appendNumber(b, demandLeaseField, uint64(lease))
}

// openPart appends what stands before a part that is so long. The numbers of all fields are small: a tag is a byte.
func openPart(b []byte, field byte, size int) []byte {
	return protowire.AppendVarint(append(b, field<<3|byte(protowire.BytesType)), uint64(size))
}

// appendNumber appends a field that is a number. One that is 0 is left out.
func appendNumber(b []byte, field byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, field<<3|byte(protowire.VarintType)), v)
}

// sizeNumber returns how many bytes appendNumber appends.
func sizeNumber(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

// appendMessage appends a field that is a message, by the endpoint that all messages can go.
func appendMessage(b []byte, field byte, m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(openPart(b, field, proto.Size(m)), m)
}
