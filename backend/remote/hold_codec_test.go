package remote

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

func anyAnswer(t *rapid.T, plain bool) *leasekeeperv1.HoldAnswer {
	a := &leasekeeperv1.HoldAnswer{
		Number: rapid.Uint64().Draw(t, "number"),
		State:  leasekeeperv1.HoldAnswer_State(rapid.Int32Range(-1, 7).Draw(t, "state")),
		TtlMs:  rapid.Int64().Draw(t, "ttl"),
		Token:  rapid.Uint64().Draw(t, "token"),
		Place:  rapid.Int32().Draw(t, "place"),
		Ended:  rapid.Bool().Draw(t, "ended"),
	}
	if plain {
		return a
	}
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		a.Code, a.Reason, a.Error = 14, leasekeeperv1.ErrorReason_LOST, "gone"
	case 1:
		a.Current = &leasekeeperv1.NameInfo{Name: "x", Held: true}
	case 2:
		a.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	}
	return a
}

// What is read is what gRPC's own codec reads, whatever was read before into the same message, and plain answers
// are read in the shorter way.
func TestHoldCodecReadsTheSame(t *testing.T) {
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	rapid.Check(t, func(t *rapid.T) {
		got := new(leasekeeperv1.HoldResponse)
		for range 4 {
			plain := rapid.Bool().Draw(t, "plain")
			want := new(leasekeeperv1.HoldResponse)
			for range rapid.IntRange(0, 5).Draw(t, "answers") {
				want.Answers = append(want.Answers, anyAnswer(t, plain))
			}
			b, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if plain && !readAnswers(b, new(leasekeeperv1.HoldResponse)) {
				t.Fatal("it is not read as plain")
			}
			if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) {
				t.Fatalf("%v, and not %v", got, want)
			}
		}
	})
}

func anyHolder(t *rapid.T) *leasekeeperv1.Holder {
	if rapid.Bool().Draw(t, "nobody") {
		return nil
	}
	h := &leasekeeperv1.Holder{Id: rapid.String().Draw(t, "id"), Pid: rapid.Int64().Draw(t, "pid"), Text: rapid.String().Draw(t, "text")}
	if rapid.Bool().Draw(t, "started") {
		h.Started = &timestamppb.Timestamp{Seconds: rapid.Int64().Draw(t, "seconds"), Nanos: rapid.Int32().Draw(t, "nanos")}
	}
	return h
}

func anyRequest(t *rapid.T) *leasekeeperv1.HoldRequest {
	req := &leasekeeperv1.HoldRequest{Holder: anyHolder(t)}
	// Names are long at times, so that lengths take more than a byte and buffers have to grow.
	name := rapid.OneOf(rapid.String(), rapid.StringN(100, 600, -1))
	for range rapid.IntRange(0, 9).Draw(t, "releases") {
		req.Releases = append(req.Releases, &leasekeeperv1.HoldRelease{
			Number: rapid.Uint64().Draw(t, "number"), Name: name.Draw(t, "name"), Lease: rapid.Int64().Draw(t, "lease"),
		})
	}
	for range rapid.IntRange(0, 9).Draw(t, "claims") {
		req.Claims = append(req.Claims, &leasekeeperv1.HoldClaim{
			Number: rapid.Uint64().Draw(t, "number"), Name: name.Draw(t, "name"), Lease: rapid.Int64().Draw(t, "lease"),
			TtlMs: rapid.Int64().Draw(t, "ttl"), Wait: rapid.Bool().Draw(t, "wait"), Holder: anyHolder(t),
		})
	}
	req.Forget = rapid.SliceOfN(rapid.Uint64(), 0, 300).Draw(t, "forget")
	return req
}

// What is written is, byte for byte, what gRPC's own codec writes, whatever was written before.
func TestHoldCodecWritesTheSame(t *testing.T) {
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	rapid.Check(t, func(t *rapid.T) {
		for range 2 {
			req := anyRequest(t)
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := codec.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Materialize(), want) {
				t.Fatalf("%x, and not %x", got.Materialize(), want)
			}
			got.Free()
		}
	})
}

// Whatever a field there may be is written, also one that is added one day.
func TestHoldCodecKnowsAllFields(t *testing.T) {
	for _, c := range []struct {
		m      proto.Message
		fields int
	}{{new(leasekeeperv1.HoldRequest), 4}, {new(leasekeeperv1.HoldRelease), 3}, {new(leasekeeperv1.HoldClaim), 6}} {
		if d := c.m.ProtoReflect().Descriptor(); d.Fields().Len() != c.fields {
			t.Errorf("%s has %d fields, and %d are written", d.Name(), d.Fields().Len(), c.fields)
		}
	}
}

// What gRPC's own codec does not write is not written, and it says why.
func TestHoldCodecRefusesTheSame(t *testing.T) {
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	const bad = "\xff"
	for what, req := range map[string]*leasekeeperv1.HoldRequest{
		"a release":           {Releases: []*leasekeeperv1.HoldRelease{{Name: bad}}},
		"a claim":             {Claims: []*leasekeeperv1.HoldClaim{{Name: bad}}},
		"a holder":            {Holder: &leasekeeperv1.Holder{Id: bad}},
		"the holder, a claim": {Claims: []*leasekeeperv1.HoldClaim{{Holder: &leasekeeperv1.Holder{Id: bad}}}},
	} {
		_, want := proto.Marshal(req)
		if _, err := codec.Marshal(req); err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, and not %v", what, err, want)
		}
	}
}

// Nothing makes it panic, and it refuses what gRPC's own codec refuses.
func FuzzHoldCodec(f *testing.F) {
	for _, a := range []*leasekeeperv1.HoldAnswer{{Number: 1, State: 3, TtlMs: 60_000, Token: 7}, {Number: 2, State: 4, Ended: true}, {Code: 1}} {
		b, err := proto.Marshal(&leasekeeperv1.HoldResponse{Answers: []*leasekeeperv1.HoldAnswer{a, a}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := new(leasekeeperv1.HoldResponse), new(leasekeeperv1.HoldResponse)
		is := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got)
		should := proto.Unmarshal(b, want)
		if (is == nil) != (should == nil) || is == nil && !proto.Equal(got, want) {
			t.Errorf("%v, %v, and not %v, %v", got, is, want, should)
		}
	})
}

// Whatever request gRPC's own codec reads is written so that it reads the same.
func FuzzHoldCodecWrites(f *testing.F) {
	for _, req := range []*leasekeeperv1.HoldRequest{
		{Claims: []*leasekeeperv1.HoldClaim{{Number: 1, Name: "a", Lease: -1, TtlMs: 60_000, Wait: true}}, Forget: []uint64{0, 1 << 63}},
		{Holder: &leasekeeperv1.Holder{Id: "h"}, Releases: []*leasekeeperv1.HoldRelease{{}, {Number: 2, Name: "b", Lease: 7}}},
	} {
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	codec := holdCodec{encoding.GetCodecV2(protocodec.Name)}
	f.Fuzz(func(t *testing.T, b []byte) {
		want := new(leasekeeperv1.HoldRequest)
		if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, want) != nil {
			return
		}
		written, err := codec.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		defer written.Free()
		got := new(leasekeeperv1.HoldRequest)
		if err := proto.Unmarshal(written.Materialize(), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%v, %v, and not %v", got, err, want)
		}
	})
}
