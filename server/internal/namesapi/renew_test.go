package namesapi

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A lease can be named often in one message, and each place is answered once and soon.
func TestRenewOneLeaseOften(t *testing.T) {
	m := &bulkMessage{number: 1, ids: make([]lessor.ID, 8*maxRenewalIDs)}
	for i := range m.ids {
		m.ids[i] = lessor.ID(1 + i%2)
	}
	start := time.Now()
	first := m.answer([]replica.RenewedLease{{ID: 2}, {ID: 1}, {ID: 2}})
	wantEqual(t, "pending", len(first.Pending), len(m.ids)-3)
	for i, place := range first.Pending {
		if i > 0 && place <= first.Pending[i-1] {
			t.Fatalf("place %d comes after place %d", place, first.Pending[i-1])
		}
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it takes %v", took)
	}
}
