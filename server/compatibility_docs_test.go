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

// documentedRefusals reads the third column of the first table of the page: what is answered Unimplemented.
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

// What the page says to be refused as unimplemented is so, and nothing else: neither can a method that comes
// to be served stay on the list, nor one be dropped unnoticed.
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

// unimplemented asks a method with an empty request. Some of those that are served wait for something; only
// for a refusal that is due it is waited as long as it takes.
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
	// Errors of these show in what is received.
	_ = stream.SendMsg(dynamicpb.NewMessage(method.Input()))
	_ = stream.CloseSend()
	return status.Code(stream.RecvMsg(dynamicpb.NewMessage(method.Output()))) == codes.Unimplemented
}
