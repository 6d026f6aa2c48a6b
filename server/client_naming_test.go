package server

import (
	"context"
	"net"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// clientRecorder is a member that records the client of each write.
type clientRecorder struct {
	member
	clients []string
}

func (m *clientRecorder) Put(ctx context.Context, _ keyspace.PutRequest) (h replica.Header, r keyspace.PutResult, err error) {
	m.clients = append(m.clients, node.ClientOf(ctx))
	return h, r, nil
}

func (m *clientRecorder) DeleteRange(ctx context.Context, _ keyspace.DeleteRequest) (h replica.Header, r keyspace.DeleteResult, err error) {
	m.clients = append(m.clients, node.ClientOf(ctx))
	return h, r, nil
}

func (m *clientRecorder) Txn(ctx context.Context, _ keyspace.TxnRequest, _ bool) (h replica.Header, r keyspace.TxnResult, err error) {
	m.clients = append(m.clients, node.ClientOf(ctx))
	return h, r, nil
}

// The client of a small command is not looked up: allocations are counted.
func TestSmallCommandsAllocateNoClientName(t *testing.T) {
	m := clientNaming{&clientRecorder{clients: make([]string, 0, 1000)}}
	ctx := t.Context()
	put := keyspace.PutRequest{Key: []byte("k"), Value: []byte("v")}
	txn := keyspace.TxnRequest{Success: []keyspace.TxnOp{put}}
	allocations := testing.AllocsPerRun(100, func() {
		_, _, _ = m.Put(ctx, put)
		_, _, _ = m.Txn(ctx, txn, false)
	})
	wantEqual(t, "allocations", allocations, 0)
}

// TestBulkCommandsNameTheirClient sends small and bulk commands: of a client of this member, and of one whose requests another
// member forwards.
func TestBulkCommandsNameTheirClient(t *testing.T) {
	large := []byte(strings.Repeat("v", 64<<10))
	own := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 1}})
	forwarded := admission.MarkPeerRequest(metadata.NewIncomingContext(own, admission.Identity("10.1.1.1").Metadata()))
	for client, ctx := range map[string]context.Context{"10.9.8.7": own, "10.1.1.1": forwarded} {
		m := new(clientRecorder)
		kv := startWith(t, anyPort(), func(n *node.Node) member { m.member = n; return m }).server.etcd.KV()
		put := &pb.PutRequest{Key: []byte("k"), Value: large}
		var errs []error
		send := func(_ any, err error) { errs = append(errs, err) }
		send(kv.Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}))
		send(kv.Put(ctx, put))
		send(kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("k")}))
		send(kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}))
		send(kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}}}))
		for _, err := range errs {
			wantEqual(t, "error", err, nil)
		}
		wantEqual(t, "clients", strings.Join(m.clients, ","), strings.Join([]string{"", client, "", client, client}, ","))
	}
}
