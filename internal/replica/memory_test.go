package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// While memory is short, commands whose effects stay in memory are refused. Commands that keep promises or free
// memory are not.
func TestShortMemoryRefusesOnlyCommandsThatStayInMemory(t *testing.T) {
	w := limitedWorld(t, SpaceLimits{})
	w.do(1, entry.Grant{Lease: 1, TTL: time.Hour})
	w.do(2, entry.Grant{Lease: 2, TTL: time.Hour})
	w.step(Memory{Short: true})
	attach := keyspace.PutRequest{Key: []byte("k"), Lease: 1}
	for id, op := range map[uint64]entry.Command{
		10: entry.Grant{Lease: 9, TTL: time.Hour}, 11: attach,
		12: keyspace.TxnRequest{Failure: []keyspace.TxnOp{keyspace.TxnRequest{Success: []keyspace.TxnOp{attach}}}},
		13: ownership.Claim{Name: "n", Lease: 7, TTL: time.Hour},
	} {
		if got := w.do(id, op); !errors.Is(got.Err, ErrNoMemory) {
			t.Errorf("%T: %v", op, got.Err)
		}
	}
	for i, op := range []entry.Command{putKey("plain"), keyspace.DeleteRequest{Key: []byte("plain")}, entry.Revoke{Lease: 2}} {
		if got := w.do(uint64(20+i), op); got.Err != nil {
			t.Errorf("%T: %v", op, got.Err)
		}
	}
	for _, e := range w.step(Renewal{ID: 30, Leases: []lessor.ID{1}}) {
		if r, ok := e.(Renewed); ok && r.Leases[0].Err != nil {
			t.Errorf("a renewal: %v", r.Leases[0].Err)
		}
	}
	w.step(Memory{})
	if got := w.do(40, attach); got.Err != nil {
		t.Errorf("with memory again: %v", got.Err)
	}
}
