package remote

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
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

// way is one connection to one endpoint.
type way struct {
	conn     *grpc.ClientConn
	names    leasekeeperv1.LeasekeeperClient
	kv       pb.KVClient // for what our own service has no method for
	renewals renewals
}

func (b *Backend) newWay(endpoint string) (*way, error) {
	secured := insecure.NewCredentials()
	if b.cfg.TLS != nil {
		secured = credentials.NewTLS(b.cfg.TLS)
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
	conn, err := grpc.NewClient(endpoint, append(options, b.cfg.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	w := &way{conn: conn, names: leasekeeperv1.NewLeasekeeperClient(conn), kv: pb.NewKVClient(conn)}
	w.renewals.b, w.renewals.way = b, w
	return w, nil
}

// way returns the one to take, and its number for leave.
func (b *Backend) way() (*way, int64) {
	n := b.preferred.Load()
	return b.ways[n%int64(len(b.ways))], n
}

// leave has the next request take another way, unless somebody has left this one already.
func (b *Backend) leave(n int64) { b.preferred.CompareAndSwap(n, n+1) }

// request is one call of the server. It may be made several times, at several endpoints. sent says whether
// it may have left.
type request func(ctx context.Context, w *way, number int64) (sent bool, err error)

// unary makes a request of one with one answer.
func unary(call func(ctx context.Context, w *way, options ...grpc.CallOption) error) request {
	return func(ctx context.Context, w *way, _ int64) (bool, error) {
		// The peer is known exactly when a stream was opened on a connection.
		var p peer.Peer
		err := call(ctx, w, grpc.Peer(&p))
		return p.Addr != nil, err
	}
}

// ask makes a request, by one way after the other, until one is answered. It gives up when ctx ends, and
// after a number of attempts. The outcome tells about all attempts.
func (b *Backend) ask(ctx context.Context, make request) outcome {
	attempts := max(minAttempts, 2*len(b.ways))
	var o outcome
	for n := range attempts {
		w, number := b.way()
		limit := b.cfg.RequestTimeout
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end)/time.Duration(max(1, len(b.ways)-n)))
		}
		attempt, cancel := context.WithTimeout(ctx, limit)
		sent, err := make(attempt, w, number)
		cancel()
		if o.err = err; err == nil || answered(err) {
			return o
		}
		o.maybe = o.maybe || sent && !isElsewhere(err)
		if ctx.Err() != nil {
			o.err = context.Cause(ctx)
			// Who was interrupted learned nothing about the endpoint; who ran out of time did.
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				b.leave(number)
			}
			return o
		}
		b.leave(number)
		if n+1 < attempts && !pause(ctx, n+1-len(b.ways)) {
			o.err = context.Cause(ctx)
			return o
		}
	}
	return o
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

// txn is a transaction of etcd's API. Nothing but the card of a holder is written by that.
func (b *Backend) txn(ctx context.Context, req *pb.TxnRequest) (resp *pb.TxnResponse, o outcome) {
	o = b.ask(ctx, unary(func(ctx context.Context, w *way, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Txn(ctx, req, options...)
		return err
	}))
	return resp, o
}

// ownership returns the key of a lease, nil if there is none.
func (b *Backend) ownership(ctx context.Context, l *lease) (key *mvccpb.KeyValue, o outcome) {
	var resp *pb.RangeResponse
	o = b.ask(ctx, unary(func(ctx context.Context, w *way, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Range(ctx, &pb.RangeRequest{Key: l.key()}, options...)
		return err
	}))
	if len(resp.GetKvs()) == 0 {
		return nil, o
	}
	return resp.Kvs[0], o
}
