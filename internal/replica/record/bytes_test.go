package record

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/wire"
)

// Records encoded by this package have the bytes that package proto writes.
func TestRecordsHaveTheBytesOfTheFormat(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	number := func() uint64 {
		return []uint64{0, 1, math.MaxUint64, math.MaxInt64, rng.Uint64() >> rng.IntN(64)}[rng.IntN(5)]
	}
	text := func() []byte {
		return [][]byte{nil, {}, []byte("x"), bytes.Repeat([]byte("long"), rng.IntN(100)), make([]byte, 20_000)}[rng.IntN(5)]
	}
	maybe := func() bool { return rng.IntN(2) > 0 }
	tenure := func() *logpb.Tenure {
		return &logpb.Tenure{
			Token: int64(number()), Lease: int64(number()), Holder: text(), FromMs: int64(number()), ToMs: int64(number()),
			Why: uint32(number()), Note: text(),
		}
	}
	for range 2_000 {
		name := &logpb.Name{
			Name: text(), Ended: number(), Last: int64(number()), Pinned: text(), Revoked: text(),
			Freed: int64(number()), FreedOrder: uint32(number()), Revision: int64(number()),
		}
		if maybe() {
			name.Current = tenure()
		}
		lease := &logpb.Lease{
			Id: int64(number()), Generation: number(), TtlNs: int64(number()), Cleared: number(),
			Claimed: maybe(), Pinned: maybe(), RenewalRefused: maybe(), Name: text(), Overtaken: maybe(), Creator: text(),
		}
		if maybe() {
			lease.Checkpointed = &logpb.Checkpointed{RemainingNs: int64(number())}
		}
		for _, m := range []proto.Message{tenure(), name, lease, new(logpb.Name), new(logpb.Tenure), new(logpb.Lease)} {
			if got := appendMessage([]byte("before"), m); !bytes.Equal(got, append([]byte("before"), wire.Marshal(m)...)) {
				t.Fatalf("%v became %x, not %x", m, got, wire.Marshal(m))
			}
		}
	}
}
