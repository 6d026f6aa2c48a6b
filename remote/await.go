package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/internal/ways"
)

const (
	// maxFailures is how often waiting or watching may fail in a row until it is given up.
	maxFailures = 12
	// steady is how long a stream must have lasted so that its end does not count with earlier ones.
	steady = 5 * time.Second
)

// turn is a stream on which the server is to say when it is a claim's turn. It goes on when the call that
// opened it has ended, until the server ends it, which it does when the claim's lease ends.
type turn struct {
	number int64 // of its way
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the rest is set
	yours  *leasekeeperv1.AcquireResponse
	err    error // if yours did not come
}

var errReplaced = errors.New("another stream is listened to")

// listen reads the rest of a stream.
func (b *Backend) listen(s *acquireStream, cancel context.CancelCauseFunc, number int64) *turn {
	t := &turn{number: number, cancel: cancel, done: make(chan struct{})}
	read := func() {
		defer close(t.done)
		defer cancel(nil)
		resp, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			t.err = status.Error(codes.Unavailable, "the server ended the stream before it was this one's turn")
		case err != nil:
			t.err = because(s.Context(), err)
		case resp.State != leasekeeperv1.AcquireResponse_YOURS:
			t.err = errNonsense
		default:
			t.yours = resp
		}
	}
	if !b.ways.Spawn(read) {
		cancel(b.ways.Closed)
		t.err = b.ways.Closed
		close(t.done)
	}
	return t
}

// Await implements [driver.Backend].
func (b *Backend) Await(ctx context.Context, l driver.Lease) (driver.Grant, error) {
	own, err := b.known(l)
	if err != nil {
		return driver.Grant{}, err
	}
	ctx, end, err := b.ways.Begin(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	defer end()
	what := "waiting for " + own.name
	for failures := 0; ; {
		began := time.Now()
		resp, err := b.await(ctx, own)
		switch {
		case err == nil && driver.Token(resp.Token) == own.token:
			return driver.Grant{Held: true, Token: own.token, TTL: length(resp.TtlMs)}, nil
		case err == nil:
			return driver.Grant{}, b.another(ctx, own, what)
		case errors.Is(err, errReplaced):
			continue
		}
		if failures++; time.Since(began) > steady {
			failures = 1
		}
		if err := b.retry(ctx, failures, err, what); err != nil {
			return driver.Grant{}, err
		}
	}
}

// await returns "yours", from the stream that there is, or from a new one.
func (b *Backend) await(ctx context.Context, l *lease) (*leasekeeperv1.AcquireResponse, error) {
	t := l.turn.Load()
	// Whoever else uses the way of the stream may have found it dead meanwhile.
	if _, number := b.ways.Way(); t == nil || !t.serves(number) {
		resp, fresh, o := b.acquire(ctx, &leasekeeperv1.AcquireRequest{
			Name: b.root + l.name, Lease: l.id, TtlMs: millis(l.ttl), Holder: &leasekeeperv1.Holder{Id: l.holder}, Wait: true,
		})
		if o.err != nil {
			return nil, o.err
		}
		if resp.State == leasekeeperv1.AcquireResponse_YOURS || driver.Token(resp.Token) != l.token {
			if fresh != nil {
				fresh.cancel(errReplaced)
			}
			return resp, nil
		}
		if old := l.turn.Swap(fresh); old != nil {
			old.cancel(errReplaced)
		}
		t = fresh
	}
	select {
	case <-t.done:
		return t.yours, t.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serves says whether a stream can still be listened to: it has brought a turn, or is open on that way.
func (t *turn) serves(way int64) bool {
	select {
	case <-t.done:
		return t.yours != nil
	default:
		return t.number == way
	}
}

// another is for when the server does not know the lease any more, so that asking for it again has made
// another claim: that is taken back.
func (b *Backend) another(ctx context.Context, l *lease, what string) error {
	if o := b.release(ctx, l); o.err != nil {
		return o.read(what) // asked again, it is tried again
	}
	return fmt.Errorf("%w: %s: the server does not know the lease any more", driver.ErrLost, what)
}

// retry says whether to try again after so many failures in a row, and waits until then. Otherwise it
// returns the error for the caller.
func (b *Backend) retry(ctx context.Context, failures int, err error, what string) error {
	if ended := ways.Ended(ctx); ended != nil {
		return fmt.Errorf("%s: %w", what, ended)
	}
	if answered(err) || failures >= maxFailures {
		return outcome{err: err}.read(what)
	}
	if !b.ways.Pause(ctx, failures) {
		return fmt.Errorf("%s: %w", what, ways.Ended(ctx))
	}
	return nil
}
