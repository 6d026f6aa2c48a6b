package remote

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// holdCodec is gRPC's own, which writes requests in a shorter way, and reads plain answers in a shorter way and into
// those that were read before: nobody keeps them. There may be tens of thousands a second.
type holdCodec struct{ encoding.CodecV2 }

// withHoldCodec has a stream use it.
func withHoldCodec() grpc.CallOption {
	return grpc.ForceCodecV2(holdCodec{encoding.GetCodecV2(proto.Name)})
}

// Unmarshal implements [encoding.CodecV2].
func (c holdCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if resp, ok := v.(*leasekeeperv1.HoldResponse); ok {
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		if readAnswers(buf.ReadOnlyData(), resp) {
			return nil
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Fields by their numbers in the service's definition.
const (
	answersField = 1
	numberField  = 1
	stateField   = 2
	ttlField     = 3
	tokenField   = 4
	placeField   = 5
	endedField   = 7
)

// readAnswers reads a message in which all answers are plain, else it returns false, and what it has read is void.
func readAnswers(b []byte, resp *leasekeeperv1.HoldResponse) bool {
	all := resp.Answers[:0]
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 || field != answersField || kind != protowire.BytesType {
			return false
		}
		one, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return false
		}
		b = b[n+m:]
		if len(all) < cap(all) {
			all = all[:len(all)+1]
		} else {
			all = append(all, nil)
		}
		a := &all[len(all)-1]
		if *a == nil {
			*a = new(leasekeeperv1.HoldAnswer)
		} else {
			(*a).Reset()
		}
		if !readAnswer(one, *a) {
			return false
		}
	}
	resp.Answers = all
	return true
}

// readAnswer reads an answer that is plain: it tells neither of who holds the name nor of a failure.
func readAnswer(b []byte, a *leasekeeperv1.HoldAnswer) bool {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.VarintType {
			return false
		}
		v, m := protowire.ConsumeVarint(b[n:])
		if m < 0 {
			return false
		}
		b = b[n+m:]
		switch field {
		case numberField:
			a.Number = v
		case stateField:
			a.State = leasekeeperv1.HoldAnswer_State(v)
		case ttlField:
			a.TtlMs = int64(v)
		case tokenField:
			a.Token = v
		case placeField:
			a.Place = int32(v)
		case endedField:
			a.Ended = protowire.DecodeBool(v)
		default:
			return false
		}
	}
	return true
}
