package serve

import (
	"errors"
	"fmt"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

func TestRemovedMemberHasTheGraceOfASignal(t *testing.T) {
	for _, ended := range []error{nil, &replica.RemovedError{Member: 7}, fmt.Errorf("stopped: %w", &replica.RemovedError{Member: 7})} {
		if got := grace(ended); got != stopLimit {
			t.Errorf("after %v requests may take %v, and not %v", ended, got, stopLimit)
		}
	}
	if got := grace(errors.New("the disk failed")); got != haltLimit {
		t.Errorf("requests at a failed member may take %v, and not %v", got, haltLimit)
	}
}
