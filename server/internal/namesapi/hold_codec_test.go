package namesapi

import (
	"testing"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// codec decodes as the server does: claims and releases by Unmarshal, other messages by gRPC's own codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if Unmarshal(data, v) {
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// A message in several buffers is decoded completely. An empty message leaves nothing of the message before.
func TestHoldRequestInSeveralBuffersIsDecoded(t *testing.T) {
	codec, got := newCodec(), new(leasekeeperv1.HoldRequest)
	for _, holder := range []*leasekeeperv1.Holder{nil, {Id: "me"}} {
		want := &leasekeeperv1.HoldRequest{
			Holder:   holder,
			Releases: []*leasekeeperv1.HoldRelease{{Number: 1, Name: "a/b", Lease: 1 << 40}},
			Claims:   []*leasekeeperv1.HoldClaim{{Number: 2, Name: "n", Lease: 7, TtlMs: 60_000}, {Number: 3, Name: "é", Lease: 8, TtlMs: 1, Wait: true}},
		}
		b, err := proto.Marshal(want)
		wantOK(t, err)
		for at := range len(b) {
			pieces := mem.BufferSlice{mem.SliceBuffer(b[:at]), mem.SliceBuffer(nil), mem.SliceBuffer(b[at:])}
			wantOK(t, codec.Unmarshal(pieces, got))
			if !proto.Equal(got, want) {
				t.Fatalf("cut at %d: %v, want %v", at, got, want)
			}
		}
		wantOK(t, codec.Unmarshal(nil, got))
		wantEqual(t, "what is left", got.String(), "")
	}
}

// The codec refuses what gRPC's own codec refuses, with the same text, also after it has decoded another message.
func FuzzHoldCodec(f *testing.F) {
	holder := &leasekeeperv1.Holder{Id: "me"}
	for _, req := range []*leasekeeperv1.HoldRequest{
		{Releases: []*leasekeeperv1.HoldRelease{{Number: 1, Name: "a/b", Lease: 7}, {Number: 2, Lease: -1}}},
		{Claims: []*leasekeeperv1.HoldClaim{{Number: 1 << 63, Name: "é", Lease: 7, TtlMs: 60_000, Wait: true}}},
		{Holder: holder, Forget: []uint64{1, 300}, Claims: []*leasekeeperv1.HoldClaim{{Number: 3, Name: "n", Holder: holder}}},
	} {
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte{0x1a, 3, 0x12, 1, 0xff}) // a name that is not UTF-8
	before, err := proto.Marshal(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{{Name: "before"}}})
	if err != nil {
		f.Fatal(err)
	}
	codec := newCodec()
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := new(leasekeeperv1.HoldRequest), new(leasekeeperv1.HoldRequest)
		wantOK(t, codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(before)}, got))
		err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got)
		wantErr := codec.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, want)
		if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
			t.Fatalf("%v, %v, want %v, %v", got, err, want, wantErr)
		}
		if err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%q, want %q", err, wantErr)
		}
	})
}
