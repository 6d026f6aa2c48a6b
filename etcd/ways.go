package etcd

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// How a dead connection is noticed while nothing is asked on it, and how soon another is tried. gRPC pings
// no more often than every ten seconds.
const (
	pingInterval   = 10 * time.Second
	pingTimeout    = 3 * time.Second
	connectTimeout = 3 * time.Second
	maxReconnect   = time.Second
)

const (
	// minAttempts is how often a request is made at least before it is given up, at all ways together.
	minAttempts = 4
	// firstPause and longestPause are those between rounds through all ways.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// way is one connection to one member.
type way struct {
	endpoint string
	conn     *grpc.ClientConn
	kv       pb.KVClient
	lease    pb.LeaseClient
	watch    pb.WatchClient
	auth     pb.AuthClient
}

func newWay(endpoint string, cfg Config) (*way, error) {
	secured := insecure.NewCredentials()
	if cfg.TLS != nil {
		secured = credentials.NewTLS(cfg.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: maxReconnect},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		// What is sent again, and when, is decided here; and no proxy from the environment.
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	}
	conn, err := grpc.NewClient(endpoint, append(options, cfg.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	return &way{
		endpoint: endpoint, conn: conn,
		kv: pb.NewKVClient(conn), lease: pb.NewLeaseClient(conn), watch: pb.NewWatchClient(conn), auth: pb.NewAuthClient(conn),
	}, nil
}

// way returns the one to take, and its number for leave.
func (b *Backend) way() (*way, int64) {
	n := b.preferred.Load()
	return b.ways[n%int64(len(b.ways))], n
}

// leave has the next request take another way, unless somebody has left this one already.
func (b *Backend) leave(n int64) { b.preferred.CompareAndSwap(n, n+1) }

// outgoing is what every request carries: that it wants an error rather than to wait for a leader, and who
// asks.
func outgoing(ctx context.Context, token string) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
	}
	return ctx
}

// request is one call of etcd. It may be made several times, at several members.
type request func(ctx context.Context, w *way, options ...grpc.CallOption) error

// ask makes a request, by one way after the other, until one is answered, and returns nil if that is a
// success. It gives up when ctx ends, and after a number of attempts.
func (b *Backend) ask(ctx context.Context, make request) *failure {
	attempts := max(minAttempts, 2*len(b.ways))
	f := new(failure)
	for n := range attempts {
		w, number := b.way()
		limit := b.cfg.RequestTimeout
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end)/time.Duration(max(1, len(b.ways)-n)))
		}
		err, sent := b.attempt(ctx, w, limit, make)
		if err == nil {
			return nil
		}
		f.err = err
		if answered(err) {
			return f
		}
		f.maybe = f.maybe || sent && !isElsewhere(err)
		if ctx.Err() != nil {
			f.err = context.Cause(ctx)
			// Who was interrupted learned nothing about the member; who ran out of time did.
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				b.leave(number)
			}
			return f
		}
		b.leave(number)
		if n+1 < attempts && !pause(ctx, n+1-len(b.ways)) {
			f.err = context.Cause(ctx)
			return f
		}
	}
	return f
}

// attempt makes a request once, or twice if the token was of no use any more. sent says whether it may have
// reached the member.
func (b *Backend) attempt(ctx context.Context, w *way, limit time.Duration, make request) (err error, sent bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for range 2 {
		token, err := b.user.token(ctx, w)
		if err != nil {
			return err, false
		}
		// The peer is known exactly when a stream was opened on a connection. Only requests with one answer
		// may ask for it: that of a longer one becomes known at any time.
		var p peer.Peer
		err = make(outgoing(ctx, token), w, grpc.Peer(&p))
		if !b.user.refused(err, token) {
			return err, p.Addr != nil
		}
	}
	return rpctypes.ErrGRPCInvalidAuthToken, false
}

// pause waits, the longer the more rounds there were, and not at all before the first; it returns false if
// ctx ends.
func pause(ctx context.Context, rounds int) bool {
	if rounds < 0 {
		return ctx.Err() == nil
	}
	length := min(longestPause, firstPause<<min(rounds, 10))
	timer := time.NewTimer(length/2 + rand.N(length/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *Backend) txn(ctx context.Context, req *pb.TxnRequest) (resp *pb.TxnResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *way, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Txn(ctx, req, options...)
		return err
	})
	return resp, f
}

// look is txn for one that only reads: nobody need know whether that happened.
func (b *Backend) look(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, *failure) {
	resp, f := b.txn(ctx, req)
	return resp, f.harmless()
}

func (b *Backend) get(ctx context.Context, req *pb.RangeRequest) (resp *pb.RangeResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *way, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Range(ctx, req, options...)
		return err
	})
	return resp, f.harmless()
}

func (b *Backend) leaseGrant(ctx context.Context, id, ttl int64) (resp *pb.LeaseGrantResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *way, options ...grpc.CallOption) (err error) {
		resp, err = w.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl}, options...)
		return err
	})
	return resp, f
}

func (b *Backend) leaseRevoke(ctx context.Context, id int64) *failure {
	return b.ask(ctx, func(ctx context.Context, w *way, options ...grpc.CallOption) error {
		_, err := w.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}, options...)
		return err
	})
}

func (b *Backend) timeToLive(ctx context.Context, id int64, keys bool) (resp *pb.LeaseTimeToLiveResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *way, options ...grpc.CallOption) (err error) {
		resp, err = w.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys}, options...)
		return err
	})
	return resp, f.harmless()
}
