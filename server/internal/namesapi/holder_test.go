package namesapi

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

// A stored holder is read back unchanged, even at its greatest length.
func TestStoredHolderKeepsAllFields(t *testing.T) {
	for _, h := range []*leasekeeperv1.Holder{
		{}, {Id: "<a>&", Text: "{\"holder\": \"b\"}\n"},
		{Id: "a", Host: "h", Pid: -1, Started: timestamppb.New(time.Unix(0, 1)), Text: "é\u2028"},
		{Id: strings.Repeat("\x01", backend.MaxHolderID), Host: strings.Repeat("\x02", backend.MaxHolderID), Text: strings.Repeat("\x03", backend.MaxCardText)},
	} {
		value, err := writeHolder(h)
		wantOK(t, err)
		if got := readHolder(value); !proto.Equal(got, h) || len(value) > maxStoredHolder {
			t.Errorf("%d bytes: got %v, want %v", len(value), got, h)
		}
	}
	for value, text := range map[string]string{
		"": "", "host-1": "host-1", "\xff": "", `{"holder": 1}`: `{"holder": 1}`, `{"id": "a"}`: `{"id": "a"}`, "[]": "[]",
		strings.Repeat("x", backend.MaxCardText+1): "",
	} {
		if got := readHolder([]byte(value)); !proto.Equal(got, &leasekeeperv1.Holder{Text: text}) {
			t.Errorf("%.20q is read as %v", value, got)
		}
	}
}
