package replica

import (
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// Thousands of bulk commands of one client wait when another client sends one. That one is in one of the next two entries,
// although it came last.
func TestBulkTakesTurnsByClient(t *testing.T) {
	const backlog = 2000
	w := newWorld(t).serve()
	defer w.close()
	w.step(Request{ID: backlog + 2, Command: put1("first", "v")}) // whose entry is on its way to the disk
	value := strings.Repeat("v", entry.BulkBytes)
	for i := range backlog {
		if effects := w.step(BulkRequest{Request: Request{ID: uint64(i + 1), Command: put1("many", value)}, Client: "many"}); len(effects) > 0 {
			if reply, ok := effects[0].(Reply); ok {
				t.Fatalf("command %d of the backlog: %v", i, reply.Err)
			}
		}
	}
	w.step(BulkRequest{Request: Request{ID: backlog + 1, Command: put1("one", value)}, Client: "one"})
	before := 0
	for _, effect := range w.settle() {
		reply, ok := effect.(Reply)
		if !ok || reply.ID > backlog+1 {
			continue
		}
		if reply.Err != nil {
			t.Errorf("request %d: %v", reply.ID, reply.Err)
		}
		if reply.ID == backlog+1 {
			if before > 2*intake.MaxBulkEntryBytes/entry.BulkBytes {
				t.Errorf("%d commands of the other client were answered before it", before)
			}
			return
		}
		before++
	}
	t.Errorf("it was not answered; %d of the other client's were", before)
}
