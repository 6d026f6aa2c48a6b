package remote

import (
	"testing"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// A message that gRPC's own codec refuses is refused with the same text.
func TestHoldCodecRefusesWithTheTextOfGRPC(t *testing.T) {
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	const bad = "\xff"
	for what, req := range map[string]*leasekeeperv1.HoldRequest{
		"a release":        {Releases: []*leasekeeperv1.HoldRelease{{Name: bad}}},
		"a claim":          {Claims: []*leasekeeperv1.HoldClaim{{Name: bad}}},
		"a holder":         {Holder: &leasekeeperv1.Holder{Id: bad}},
		"a claim's holder": {Claims: []*leasekeeperv1.HoldClaim{{Holder: &leasekeeperv1.Holder{Id: bad}}}},
	} {
		_, want := proto.Marshal(req)
		if _, err := codec.Marshal(req); err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

// Responses that package holdwire does not decode are decoded too, in any order.
func TestHoldCodecDecodesFailuresToo(t *testing.T) {
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	got := new(leasekeeperv1.HoldResponse)
	success := &leasekeeperv1.HoldAnswer{Number: 1, State: leasekeeperv1.HoldAnswer_HELD, TtlMs: 60_000, Token: 7}
	failure := &leasekeeperv1.HoldAnswer{Number: 2, State: leasekeeperv1.HoldAnswer_FAILED, Code: 9, Error: "gone"}
	for _, answers := range [][]*leasekeeperv1.HoldAnswer{{success, failure}, {success}, {failure}, {failure, success}, {}} {
		want := &leasekeeperv1.HoldResponse{Answers: answers}
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
}

// The codec encodes so that gRPC's own codec decodes the same message.
func TestHoldCodecEncodesForGRPC(t *testing.T) {
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	want := &leasekeeperv1.HoldRequest{
		Holder: &leasekeeperv1.Holder{Id: "me"}, Forget: []uint64{5},
		Claims:   []*leasekeeperv1.HoldClaim{{Number: 1, Name: "a", Lease: -1, TtlMs: 60_000, Wait: true}},
		Releases: []*leasekeeperv1.HoldRelease{{Number: 2, Name: "b", Lease: 7}},
	}
	for range 2 { // the second time with a buffer of the pool
		text, err := codec.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := new(leasekeeperv1.HoldRequest)
		if err := codec.CodecV2.Unmarshal(text, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
		text.Free()
	}
}
