package namesapi

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
)

// However much happens before a watcher reads, no message is larger than clients accept.
func TestChangesOfNamesAreSplitIntoMessages(t *testing.T) {
	const usualMessage = 4 << 20 // what gRPC clients accept by default
	big := &leasekeeperv1.Holder{Id: "me", Text: strings.Repeat("x", backend.MaxCardText), Host: strings.Repeat("h", backend.MaxHolderID)}
	changes := make([]ownership.Change, 2*maxListNames)
	value, err := writeHolder(big)
	wantOK(t, err)
	for i := range changes {
		changes[i] = ownership.Change{Kind: ownership.Acquired, State: ownership.State{Name: "n", Held: true, Holder: value}}
	}
	sent := new(eventCounter)
	wantOK(t, (&nameWatch{stream: sent}).sendChanges(changes))
	wantEqual(t, "events", sent.events, len(changes))
	if sent.largest > usualMessage {
		t.Errorf("a message of %d bytes", sent.largest)
	}
}

// eventCounter is a stream that counts events and discards them.
type eventCounter struct {
	namesWatchStream
	events, largest int
}

func (e *eventCounter) Send(r *leasekeeperv1.WatchResponse) error {
	e.events, e.largest = e.events+len(r.Events), max(e.largest, proto.Size(r))
	return nil
}
