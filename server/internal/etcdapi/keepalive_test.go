package etcdapi

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func TestUnansweredRenewalsAreBounded(t *testing.T) {
	r := newRenewals(3)
	for i := range 3 {
		if !r.add(lessor.ID(i)) {
			t.Fatalf("number %d does not fit", i)
		}
	}
	if r.add(3) {
		t.Fatal("a fourth fits into three")
	}
	ids, _, _, _ := r.take(nil)
	wantEqual(t, "taken ids", len(ids), 3)
	if r.add(3) {
		t.Fatal("what is with the member does not count")
	}
	r.deliver(replica.Header{}, []replica.RenewedLease{{ID: 0}})
	_, answers, _, _ := r.take(nil)
	wantEqual(t, "answers", len(answers), 1)
	if r.add(3) {
		t.Fatal("an answer that is not sent does not count")
	}
	r.Sent(1)
	if !r.add(3) || r.add(4) {
		t.Fatal("one answer sent does not make room for one")
	}
}
