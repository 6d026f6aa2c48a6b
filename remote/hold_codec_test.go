package remote

import (
	"testing"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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
