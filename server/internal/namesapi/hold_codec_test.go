package namesapi

import (
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// codec reads as the server does: plain messages by Unmarshal, others by gRPC's own codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if Unmarshal(data, v) {
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// strange adds a field that nobody knows.
func strange(m proto.Message) {
	m.ProtoReflect().SetUnknown(protoreflect.RawFields(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)))
}

func anyHoldRequest(t *rapid.T, plain bool) *leasekeeperv1.HoldRequest {
	req := new(leasekeeperv1.HoldRequest)
	name := rapid.OneOf(rapid.StringN(0, 20, 60), rapid.Just(strings.Repeat("é", 300)))
	most := rapid.SampledFrom([]int{2, 8, maxReusedRequests + 6}).Draw(t, "most")
	for range rapid.IntRange(0, most).Draw(t, "releases") {
		req.Releases = append(req.Releases, &leasekeeperv1.HoldRelease{
			Number: rapid.Uint64().Draw(t, "number"), Name: name.Draw(t, "name"), Lease: rapid.Int64().Draw(t, "lease"),
		})
	}
	for range rapid.IntRange(0, most).Draw(t, "claims") {
		req.Claims = append(req.Claims, &leasekeeperv1.HoldClaim{
			Number: rapid.Uint64().Draw(t, "number"), Name: name.Draw(t, "name"), Lease: rapid.Int64().Draw(t, "lease"),
			TtlMs: rapid.Int64().Draw(t, "ttl"), Wait: rapid.Bool().Draw(t, "wait"),
		})
	}
	if plain {
		return req
	}
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		req.Holder = &leasekeeperv1.Holder{Id: "me"}
	case 1:
		req.Forget = []uint64{1, 1 << 60}
	case 2:
		strange(req)
	case 3:
		one := &leasekeeperv1.HoldClaim{Name: "n", Holder: &leasekeeperv1.Holder{Id: "other"}}
		strange(one)
		req.Claims = append(req.Claims, one)
	case 4:
		one := &leasekeeperv1.HoldRelease{Name: "n"}
		strange(one)
		req.Releases = append(req.Releases, one)
	}
	return req
}

// What is read is what gRPC's own codec reads, whatever was read before into the same message, and plain messages
// are read in the shorter way. Names that were read before stay what they are.
func TestHoldRequestReadsAsWithGRPCsCodec(t *testing.T) {
	codec := newCodec()
	rapid.Check(t, func(t *rapid.T) {
		got := new(leasekeeperv1.HoldRequest)
		var kept, should []string
		for range 4 {
			plain := rapid.Bool().Draw(t, "plain")
			want := anyHoldRequest(t, plain)
			b, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if plain && !readHold(b, new(leasekeeperv1.HoldRequest)) {
				t.Fatal("it is not read as plain")
			}
			if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) {
				t.Fatalf("%v, and not %v", got, want)
			}
			for i, c := range want.Claims {
				kept, should = append(kept, got.Claims[i].Name), append(should, c.Name)
			}
			clear(b) // as gRPC uses it again
		}
		for i := range should {
			if kept[i] != should[i] {
				t.Fatalf("the name %q has become %q", should[i], kept[i])
			}
		}
	})
}

// A message that comes in pieces is the same, and an empty one leaves nothing of the one before.
func TestHoldRequestInPiecesIsTheSame(t *testing.T) {
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
				t.Fatalf("cut at %d: %v, and not %v", at, got, want)
			}
		}
		wantOK(t, codec.Unmarshal(nil, got))
		wantEqual(t, "what is left", got.String(), "")
	}
}

// What is large once is not kept, and what is small is used again.
func TestSmallHoldRequestsAreReused(t *testing.T) {
	codec, got := newCodec(), new(leasekeeperv1.HoldRequest)
	read := func(n int) *leasekeeperv1.HoldClaim {
		want := new(leasekeeperv1.HoldRequest)
		for range n {
			want.Claims = append(want.Claims, &leasekeeperv1.HoldClaim{Name: "n"})
		}
		b, err := proto.Marshal(want)
		wantOK(t, err)
		wantOK(t, codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got))
		return got.Claims[0]
	}
	first := read(8)
	wantEqual(t, "it is the same", read(3) == first, true)
	wantEqual(t, "its last", got.Claims[:8][7].Name, "")
	large := read(maxReusedRequests + 1)
	wantEqual(t, "it is the same", read(1) == large, false)
	wantEqual(t, "room", cap(got.Claims) <= maxReusedRequests, true)
}

// Nothing makes it panic, and it refuses what gRPC's own codec refuses, in the same words.
func FuzzHoldCodec(f *testing.F) {
	holder := &leasekeeperv1.Holder{Id: "me"}
	for _, req := range []*leasekeeperv1.HoldRequest{
		{Releases: []*leasekeeperv1.HoldRelease{{Number: 1, Name: "a/b", Lease: 7}, {Number: 2, Lease: -1}}},
		{Claims: []*leasekeeperv1.HoldClaim{{Number: 1 << 63, Name: "é", Lease: 7, TtlMs: 60_000, Wait: true}, {Name: strings.Repeat("x", maxSharedText)}}},
		{Holder: holder, Forget: []uint64{1, 300}, Claims: []*leasekeeperv1.HoldClaim{{Number: 3, Name: "n", Holder: holder}}},
	} {
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte{claimsTag, 3, nameTag, 1, 0xff})                                                       // no text
	f.Add([]byte{claimsTag, 5, nameTag, 1, 'a', waitTag, 2})                                            // twice a name, and a truth of 2
	f.Add([]byte{releasesTag, 2, nameTag, 4, 'a', 'b', 'c', 'd'})                                       // a name longer than what it stands in
	f.Add([]byte{releasesTag, 4, ttlTag, 1, numberTag, 1})                                              // a field of others
	f.Add([]byte{releasesTag, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})              // a length beyond all
	f.Add([]byte{claimsTag, 11, numberTag, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}) // a number beyond all
	codec := newCodec()
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := new(leasekeeperv1.HoldRequest), new(leasekeeperv1.HoldRequest)
		is := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got)
		should := codec.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, want)
		if (is == nil) != (should == nil) || is == nil && !proto.Equal(got, want) {
			t.Fatalf("%v, %v, and not %v, %v", got, is, want, should)
		}
		if is != nil && is.Error() != should.Error() {
			t.Errorf("%q, and not %q", is, should)
		}
	})
}
