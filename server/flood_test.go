package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// narrow returns a configuration of a server that one client can easily fill: it has 32 open requests, 32 waiting claims and
// 128 streams. No request is too slow for it.
func narrow() Config {
	c := anyPort()
	c.MaxRequests, c.MemoryLimit, c.RequestTimeout = 32, 128*bytesPerStream, 10*waitLimit
	return c
}

// unlimited returns the context of a user's requests without a limit of time, because a flood takes as long as the machine is
// slow.
func (f *front) unlimited(user string) context.Context {
	f.t.Helper()
	md, _ := metadata.FromOutgoingContext(f.as(user))
	return metadata.NewOutgoingContext(f.t.Context(), md)
}

// floodConns is the number of a flood's connections, each with floodCallers goroutines that send request after request.
const (
	floodConns   = 3
	floodCallers = 16
)

// flood is a user that takes all that it gets.
type flood struct {
	f       *front
	ctx     context.Context // of the user
	conns   [floodConns]*grpc.ClientConn
	sent    atomic.Int64
	refused atomic.Int64
}

// note counts the outcome of a request of the flood.
func (l *flood) note(err error) {
	l.sent.Add(1)
	if status.Code(err) == codes.ResourceExhausted {
		l.refused.Add(1)
	}
}

// occupy opens streams of renewals, watchers and waiting claims until each kind is refused, and leaves them open. ctx is of the
// streams. It returns which kinds were not refused however many there are.
func (l *flood) occupy(t *testing.T, ctx context.Context) (endless []string) {
	t.Helper()
	held := newLeases(1)
	kinds := map[string]func(*grpc.ClientConn) error{
		"claims": func(conn *grpc.ClientConn) error {
			s, err := leasekeeperv1.NewLeasekeeperClient(conn).Acquire(ctx, &leasekeeperv1.AcquireRequest{
				Name: "flood/held", Lease: newLeases(1), TtlMs: 600_000, Wait: true, Holder: &leasekeeperv1.Holder{Id: "flood"}})
			wantOK(t, err)
			_, err = s.Recv()
			return err
		},
		"renewals": func(conn *grpc.ClientConn) error {
			s, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
			wantOK(t, err)
			_ = s.Send(&pb.LeaseKeepAliveRequest{ID: held}) // Recv has the error
			_, err = s.Recv()
			return err
		},
		"watchers": func(conn *grpc.ClientConn) error {
			s, err := pb.NewWatchClient(conn).Watch(ctx)
			wantOK(t, err)
			_ = s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}})
			_, err = s.Recv()
			return err
		},
	}
	for _, kind := range []string{"claims", "renewals", "watchers"} {
		var err error
		for i := 0; i < 400 && status.Code(err) != codes.ResourceExhausted; i++ {
			err = kinds[kind](l.conns[i%floodConns])
		}
		if status.Code(err) != codes.ResourceExhausted {
			endless = append(endless, fmt.Sprintf("%s (%v)", kind, err))
		}
	}
	return endless
}

// start sends requests from many goroutines until stop is called.
func (l *flood) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for i := range floodConns * floodCallers {
		conn := l.conns[i%floodConns]
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.note(l.request(ctx, conn, i+n))
			}
		})
	}
	return func() { cancel(); callers.Wait() }
}

// request sends one request: a put, a read, a grant, or a claim that does not wait.
func (l *flood) request(ctx context.Context, conn *grpc.ClientConn, n int) (err error) {
	switch key := fmt.Appendf(nil, "a%d", n%100); n % 4 {
	case 0:
		_, err = pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: key, Value: make([]byte, 100)})
	case 1:
		_, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")})
	case 2:
		_, err = pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 600})
	default:
		call, cancel := context.WithCancel(ctx)
		defer cancel()
		s, opened := leasekeeperv1.NewLeasekeeperClient(conn).Acquire(call, &leasekeeperv1.AcquireRequest{
			Name: fmt.Sprintf("flood/%d", n), Lease: newLeases(1), TtlMs: 600_000, Holder: &leasekeeperv1.Holder{Id: "flood"}})
		if err = opened; err == nil {
			_, err = s.Recv()
		}
	}
	return err
}

// bystander is a user that works beside a flood.
type bystander struct {
	t     *testing.T
	f     *front
	ctx   context.Context // of the user
	lease int64           // of all its keys
	name  string
}

// try calls a function until it succeeds, as long as the cluster has no leader for it or cannot tell the outcome. Any other
// error fails the test: nothing of a bystander is refused.
func (b *bystander) try(what string, call func() error) {
	b.t.Helper()
	for again := false; ; again = true {
		err := call()
		switch status.Code(err) {
		case codes.OK:
			return
		case codes.Unavailable, codes.DeadlineExceeded:
			continue
		case codes.NotFound, codes.FailedPrecondition:
			if again && what == "a release" {
				return // the first release was not in vain
			}
		}
		b.t.Fatalf("%s: %v", what, err)
	}
}

// renew renews the bystander's lease on a new stream, as often as rounds says.
func (b *bystander) renew(rounds int) error {
	s, err := b.f.lease.LeaseKeepAlive(b.ctx)
	if err != nil {
		return err
	}
	for range rounds {
		if err := s.Send(&pb.LeaseKeepAliveRequest{ID: b.lease}); err != nil {
			_, err = s.Recv()
			return err
		}
		resp, err := s.Recv()
		if err != nil {
			return err
		}
		if resp.TTL <= 0 {
			b.t.Fatalf("the lease is lost: %v", resp)
		}
	}
	_ = s.CloseSend()
	return nil
}

// claim claims the bystander's name, renews the claim and releases it.
func (b *bystander) claim(lease int64) error {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	s, err := b.f.names().Acquire(ctx, &leasekeeperv1.AcquireRequest{Name: b.name, Lease: lease, TtlMs: 600_000, Wait: true, Holder: &leasekeeperv1.Holder{Id: "bystander"}})
	if err != nil {
		return err
	}
	resp, err := s.Recv()
	if err != nil {
		return err
	}
	if resp.State != leasekeeperv1.AcquireResponse_HELD {
		b.t.Fatalf("%s is not held: %v", b.name, resp)
	}
	renewals, err := b.f.names().Renew(ctx)
	if err != nil {
		return err
	}
	_ = renewals.Send(&leasekeeperv1.RenewRequest{Number: 1, Leases: []int64{lease}}) // Recv has the error
	renewed, err := renewals.Recv()
	if err != nil {
		return err
	}
	if len(renewed.Refused) > 0 {
		b.t.Fatalf("a renewal of %s is refused: %v", b.name, renewed)
	}
	return nil
}

// work does what programs do, for some rounds.
func (b *bystander) work(rounds int) {
	b.t.Helper()
	for round := range rounds {
		b.try("a put", func() error {
			_, err := b.f.kv.Put(b.ctx, &pb.PutRequest{Key: []byte("bystander"), Value: fmt.Append(nil, round), Lease: b.lease})
			return err
		})
		b.try("a renewal", func() error { return b.renew(3) })
		lease := newLeases(1)
		b.try("a claim", func() error { return b.claim(lease) })
		b.try("a release", func() error {
			_, err := b.f.names().Release(b.ctx, &leasekeeperv1.ReleaseRequest{Name: b.name, Lease: lease})
			return err
		})
	}
}

// bystanders returns one bystander at each front, as bare.
func bystanders(t *testing.T, fronts []*front) (all []*bystander) {
	t.Helper()
	for i, f := range fronts {
		b := &bystander{t: t, f: f, ctx: f.unlimited("bare"), name: fmt.Sprintf("calm/%d", i)}
		var err error
		b.lease, err = f.grantLease(b.ctx)
		wantOK(t, err)
		all = append(all, b)
	}
	return all
}

// mustBearFlood floods at one front as alice, with and without quotas, and works at each of the fronts as bare. It needs a
// fresh server or cluster.
func mustBearFlood(t *testing.T, at *front, fronts ...*front) {
	at.addUsers()
	at.grantRight("", hold)
	_, err := at.auth.UserGrantRole(at.as("root"), &pb.AuthUserGrantRoleRequest{User: "bare", Role: "half"})
	wantOK(t, err)
	l := &flood{f: at, ctx: at.unlimited("alice")}
	for i := range l.conns {
		l.conns[i] = dial(t, at.server.Addr())
	}
	streams, end := context.WithCancel(l.ctx)
	defer end()
	if endless := l.occupy(t, streams); len(endless) > 0 {
		t.Fatalf("never refused: %v", endless)
	}
	others := bystanders(t, fronts)
	for _, limits := range []*leasekeeperv1.Limits{
		{Leases: limit(access.Unlimited), Names: limit(access.Unlimited), Watchers: limit(access.Unlimited), RequestsPerSecond: limit(access.Unlimited)},
		{Leases: limit(20), Names: limit(5), Watchers: limit(3), RequestsPerSecond: limit(20)},
	} {
		at.setQuota("alice", limits)
		before := l.sent.Load()
		stop := l.start(l.ctx)
		for _, b := range others {
			b.work(5)
		}
		stop()
		if l.sent.Load()-before < floodConns*floodCallers {
			t.Errorf("the flood sent %d requests", l.sent.Load()-before)
		}
	}
	if l.refused.Load() == 0 {
		t.Error("no request of the flood was refused")
	}
	for _, b := range others {
		if _, err := b.f.lease.LeaseRevoke(b.ctx, &pb.LeaseRevokeRequest{ID: b.lease}); err != nil {
			t.Errorf("the lease of a bystander is lost: %v", err)
		}
	}
}

// A user that takes all that it gets hurts no other: of another user at the same server no put, renewal, claim or release is
// refused, and no lease is lost.
func TestFloodOfOneUserHurtsNoOther(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		f := startConfiguredWithUsers(t, narrow())
		mustBearFlood(t, f, f)
	})
	t.Run("cluster", func(t *testing.T) {
		tr := startTrioWith(t, waitLimit, narrow())
		leader, follower := tr.leader()
		mustBearFlood(t, follower.front, follower.front, leader.front)
	})
}

// The encoding of an answer has its turn by the user, as the rest of the request has.
func TestAnswerOfAUserIsEncodedInItsTurn(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	resp, err := f.auth.Authenticate(f.ctx(), &pb.AuthenticateRequest{Name: "alice", Password: "alice"})
	wantOK(t, err)
	for token, want := range map[string]admission.Identity{resp.Token: "user alice", "forged.1": ""} {
		ctx := metadata.NewIncomingContext(f.ctx(), metadata.Pairs("token", token))
		answer, err := f.server.interceptClientUnary(ctx, &pb.RangeRequest{}, &grpc.UnaryServerInfo{FullMethod: pb.KV_Range_FullMethodName},
			func(ctx context.Context, _ any) (any, error) { return new(pb.RangeResponse), nil })
		wantOK(t, err)
		wantEqual(t, "identity", admission.IdentityOf(answer.(*reservedMessage).reservation.turn.ctx), want)
	}
}
