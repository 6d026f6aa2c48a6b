package server

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

// The longest name is valid with a namespace in front of it.
func TestNamespaceLeavesRoomForTheLongestName(t *testing.T) {
	f := startFront(t)
	long := strings.Repeat("n", backend.MaxName)
	for i, name := range []string{
		"ns/" + long, long + "/" + long, "some/ns/" + strings.Repeat("n", 300) + "/" + strings.Repeat("n", 200), "ns/" + strings.Repeat("a/", 255) + "a",
	} {
		f.hold(name, int64(i+1), 60_000)
		if info := f.info(name); !info.Held || info.Name != name {
			t.Errorf("%.20s…: %v", name, info)
		}
		f.release(name, int64(i+1))
	}
	for _, name := range []string{
		"n" + long, "ns/n" + long, long + "/" + long + "/n", long + "//n", "/" + long, long + "/", long + "/../n", strings.Repeat("a/", 600) + "a",
	} {
		_, err := f.acquire(&leasekeeperv1.AcquireRequest{Name: name, TtlMs: 1000, Holder: holder("me")}).stream.Recv()
		wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
}
