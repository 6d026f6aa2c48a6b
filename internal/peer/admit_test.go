package peer

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// IDs that appear in no other text.
const (
	here1, here2 = 0xaaaa10001, 0xaaaa20002
	elsewhere    = 0xbbbb30003
	hereCluster  = 0xcccc40004
)

// knock opens a stream of frames and one of a state with a Hello, and returns the error of each.
func knock(t *testing.T, address string, creds credentials.TransportCredentials, hello *peerpb.Hello) []error {
	t.Helper()
	conn := must[*grpc.ClientConn](t)(grpc.NewClient(address, grpc.WithTransportCredentials(creds)))
	defer conn.Close()
	ctx := within(t)
	if hello != nil {
		text := must[[]byte](t)(proto.Marshal(hello))
		ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs(helloKey, string(text)))
	}
	frames, err := peerpb.NewPeerClient(conn).Urgent(ctx)
	if err == nil {
		_, err = frames.Recv()
	}
	state, shipped := peerpb.NewPeerClient(conn).Ship(ctx)
	if shipped == nil {
		_, shipped = state.CloseAndRecv()
	}
	return []error{err, shipped}
}

// wrongHellos are Hellos that no member of the cluster sends to here1.
func wrongHellos() map[string]*peerpb.Hello {
	with := func(change func(*peerpb.Hello)) *peerpb.Hello {
		h := &peerpb.Hello{Version: 1, Oldest: 1, ClusterId: hereCluster, From: here2, To: here1, Incarnation: 5}
		change(h)
		return h
	}
	return map[string]*peerpb.Hello{
		"none":              nil,
		"old version":       with(func(h *peerpb.Hello) { h.Version = 0 }),
		"other cluster":     with(func(h *peerpb.Hello) { h.ClusterId = elsewhere }),
		"to another member": with(func(h *peerpb.Hello) { h.To = elsewhere }),
		"from itself":       with(func(h *peerpb.Hello) { h.From = here1 }),
		"from nobody":       with(func(h *peerpb.Hello) { h.From = elsewhere }),
		"no incarnation":    with(func(h *peerpb.Hello) { h.Incarnation = 0 }),
	}
}

func wantNoIDs(t *testing.T, m *member, errs []error) {
	t.Helper()
	for _, err := range errs {
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("the caller got %v, no refusal", err)
		}
		for _, id := range []uint64{m.cfg.ClusterID, m.cfg.Self, here2, m.cfg.Incarnation} {
			if text := fmt.Sprintf("%x", id); strings.Contains(err.Error(), text) {
				t.Errorf("the refusal has the id %s: %v", text, err)
			}
		}
	}
}

// A refused caller receives no ID: from IDs it could make a Hello that is accepted.
func TestRefusalsContainNoIDs(t *testing.T) {
	g := newCluster(t, here1, here2)
	g.listeners[here2].Close()
	a := g.start(here1, func(c *Config, _ *member) { c.ClusterID = hereCluster })
	for name, hello := range wrongHellos() {
		t.Run(name, func(t *testing.T) { wantNoIDs(t, a, knock(t, g.members[here1], insecure.NewCredentials(), hello)) })
	}
}

// With TLS, a caller with a certificate of the authority that is no member gets the same answer to every Hello, even
// to a member's.
func TestOnlyProvenMembersAreServed(t *testing.T) {
	ca := authority.New(t, "authority")
	g := newCluster(t, here1, here2)
	g.listeners[here2].Close()
	a := g.start(here1, func(c *Config, _ *member) { c.ClusterID, c.Files = hereCluster, filesOf(t, ca, here, ca) })
	pair := must[tls.Certificate](t)(tls.X509KeyPair(ca.Issue("member", "client.example")))
	creds := credentials.NewTLS(ca.Trust(pair))
	hellos := wrongHellos()
	hellos["right"] = &peerpb.Hello{Version: 1, Oldest: 1, ClusterId: hereCluster, From: here2, To: here1, Incarnation: 5}
	for name, hello := range hellos {
		t.Run(name, func(t *testing.T) {
			errs := knock(t, g.members[here1], creds, hello)
			wantNoIDs(t, a, errs)
			for _, err := range errs {
				if status.Convert(err).Message() != unprovenText {
					t.Errorf("a caller that is no member learns more than that: %v", err)
				}
			}
		})
	}
	if s := a.peer(here2); s.Listening || !s.Heard.IsZero() {
		t.Error("a caller that is no member was accepted")
	}
}
