package namesapi

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A message may contain a lease several times. Each index is answered once, and no other index changes.
func TestRenewAnswersEachRepetitionOfALease(t *testing.T) {
	m := &bulkMessage{number: 1, ids: make([]lessor.ID, 8*maxRenewalIDs)}
	for i := range m.ids {
		m.ids[i] = lessor.ID(1 + i%2)
	}
	m.index()
	second := &m.places[1][1]
	first := m.answer([]replica.RenewedLease{{ID: 2}, {ID: 1}, {ID: 2}})
	wantEqual(t, "pending", len(first.Pending), len(m.ids)-3)
	for i, place := range first.Pending {
		if i > 0 && place <= first.Pending[i-1] {
			t.Fatalf("place %d comes after place %d", place, first.Pending[i-1])
		}
	}
	if &m.places[1][0] != second {
		t.Error("the places that are not answered were copied: a message takes the square of its length")
	}
}
