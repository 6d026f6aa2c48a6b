package server

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
)

// documentedRefusals reads from the page's first table, third column, the methods that answer Unimplemented.
func documentedRefusals(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../docs/compatibility.md")
	wantOK(t, err)
	_, table, ok := strings.Cut(string(page), "| service | works | answers `Unimplemented` |\n")
	if !ok {
		t.Fatal("the page has no table of what is answered Unimplemented")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	refused := make(map[string]bool)
	for _, row := range strings.Split(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) != 5 {
			t.Fatalf("a row has not three columns: %q", row)
		}
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cells[3], -1) {
			refused[name[1]] = true
		}
	}
	return refused
}

// The page lists exactly the unimplemented methods. A method that becomes implemented must leave the list, and one that
// is dropped must enter it.
func TestUnimplementedMethodsAreThoseDocumented(t *testing.T) {
	f := startFront(t)
	refused := documentedRefusals(t)
	for _, m := range []proto.Message{&pb.RangeRequest{}, &v3lockpb.LockRequest{}, &v3electionpb.LeaderRequest{}} {
		services := m.ProtoReflect().Descriptor().ParentFile().Services()
		for i := range services.Len() {
			methods := services.Get(i).Methods()
			for j := range methods.Len() {
				method := methods.Get(j)
				name := string(method.Name())
				if got, want := f.unimplemented(method, refused[name]), refused[name]; got != want {
					t.Errorf("%s is answered Unimplemented: %t; the page says %t", method.FullName(), got, want)
				}
				delete(refused, name)
			}
		}
	}
	for name := range refused {
		t.Errorf("the page says that %s is answered Unimplemented, which etcd's API has not", name)
	}
}

// unimplemented calls a method with an empty request, and reports whether it answers Unimplemented. Implemented methods
// may wait for something, so only an expected refusal is awaited without a short limit.
func (f *front) unimplemented(method protoreflect.MethodDescriptor, due bool) bool {
	f.t.Helper()
	ctx := f.ctx()
	if !due {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
	}
	path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	stream, err := f.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, path)
	wantOK(f.t, err)
	// An error of sending shows when receiving.
	_ = stream.SendMsg(dynamicpb.NewMessage(method.Input()))
	_ = stream.CloseSend()
	return status.Code(stream.RecvMsg(dynamicpb.NewMessage(method.Output()))) == codes.Unimplemented
}
