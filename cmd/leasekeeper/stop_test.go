//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// A client opens a watch and does not read its events. The server still stops cleanly, with exit code 0.
func TestServerStopsCleanlyWithAClientThatDoesNotRead(t *testing.T) {
	dir := t.TempDir()
	r, err := launch(launchOptions{dir: dir, env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.kill()
	conn, err := grpc.NewClient(r.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	create := &pb.WatchCreateRequest{Key: []byte("k")}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	for i := range 8 { // more than the network buffers between client and server hold
		put := &pb.PutRequest{Key: []byte("k"), Value: fmt.Appendf(nil, "%0200000d", i)}
		if _, err := pb.NewKVClient(conn).Put(ctx, put); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(); code != command.ExitDone {
		text, _ := os.ReadFile(filepath.Join(dir, "server.err"))
		t.Errorf("ended with code %d:\n%s", code, text)
	}
}
