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
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

const (
	// maxFailures is how often waiting or watching may fail in a row until it is given up.
	maxFailures = 12
	// steady is how long a stream must have lasted so that its end does not count with earlier ones.
	steady = 5 * time.Second
)

// turn is where the server is to say when it is a claim's turn. It goes on when the call that made the claim
// has ended, until the server has said so, or the stream on which it is to do so breaks.
type turn struct {
	number int64       // of the endpoint
	quit   func(error) // has nothing more be told
	done   chan struct{}

	// Set when done is closed.
	yours reply
	err   error // if yours did not come
}

var errReplaced = errors.New("another stream is listened to")

// end tells those who wait for a turn. It is called once.
func (t *turn) end(yours reply, err error) {
	if err == nil && (yours.state != leasekeeperv1.AcquireResponse_HELD || yours.token == 0 || yours.ttlMs <= 0) {
		err = errNonsense
	}
	if err != nil {
		yours = reply{}
	}
	t.yours, t.err = yours, err
	close(t.done)
}

// listen reads the rest of a stream of one claim.
func (b *Backend) listen(s *acquireStream, cancel context.CancelCauseFunc, number, lease int64) *turn {
	t := &turn{number: number, quit: cancel, done: make(chan struct{})}
	read := func() {
		defer cancel(nil)
		r, err := s.reply(lease)
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, "the server ended the stream before it was this one's turn")
		} else {
			err = because(s.Context(), err)
		}
		t.end(r, err)
	}
	if !b.endpoints.Spawn(read) {
		cancel(b.endpoints.Closed)
		t.end(reply{}, b.endpoints.Closed)
	}
	return t
}

// Await implements [backend.Backend].
func (b *Backend) Await(ctx context.Context, l backend.Lease) (backend.Grant, error) {
	own, err := b.known(l)
	if err != nil {
		return backend.Grant{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return backend.Grant{}, err
	}
	defer end()
	what := "waiting for " + own.Name()
	for failures := 0; ; {
		began := time.Now()
		r, err := b.await(ctx, own)
		switch {
		case err == nil && r.token == own.token:
			return backend.Grant{Held: true, Token: own.token, TTL: length(r.ttlMs)}, nil
		case err == nil:
			return backend.Grant{}, b.another(ctx, own, what)
		case errors.Is(err, errReplaced):
			continue
		}
		if failures++; time.Since(began) > steady {
			failures = 1
		}
		if err := b.retry(ctx, failures, err, what); err != nil {
			return backend.Grant{}, err
		}
	}
}

// await returns "yours", from where it is listened for, or by asking again.
func (b *Backend) await(ctx context.Context, l *lease) (reply, error) {
	t := l.turn.Load()
	// Another user of the stream's endpoint may have found it dead meanwhile.
	if _, number := b.endpoints.Endpoint(); t == nil || !t.serves(number) {
		r, fresh, o := b.acquire(ctx, &claimArgs{
			name: l.wire, lease: l.id, ttlMs: millis(l.ttl), holder: backend.Holder{ID: l.holder}, wait: true,
		})
		if o.err != nil {
			return reply{}, o.err
		}
		if r.state == leasekeeperv1.AcquireResponse_HELD || r.token != l.token {
			if fresh != nil {
				fresh.quit(errReplaced)
			}
			return r, nil
		}
		if old := l.turn.Swap(fresh); old != nil {
			old.quit(errReplaced)
		}
		t = fresh
	}
	select {
	case <-t.done:
		return t.yours, t.err
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// serves says whether a stream can still be listened to: it has brought a turn, or is open on that endpoint.
func (t *turn) serves(endpoint int64) bool {
	select {
	case <-t.done:
		return t.err == nil
	default:
		return t.number == endpoint
	}
}

// another is for when the server no longer knows the lease, so that asking for it again has made
// another claim: that is taken back.
func (b *Backend) another(ctx context.Context, l *lease, what string) error {
	if o := b.release(ctx, l); o.err != nil {
		return o.read(what) // asked again, it is tried again
	}
	return fmt.Errorf("%w: %s: the server no longer knows the lease", backend.ErrLost, what)
}

// retry says whether to try again after so many failures in a row, and waits until then. Otherwise it
// returns the error for the caller.
func (b *Backend) retry(ctx context.Context, failures int, err error, what string) error {
	if ended := endpoints.Ended(ctx); ended != nil {
		return fmt.Errorf("%s: %w", what, ended)
	}
	if answered(err) || failures >= maxFailures {
		return outcome{err: err}.read(what)
	}
	if !b.endpoints.Pause(ctx, failures) {
		return fmt.Errorf("%s: %w", what, endpoints.Ended(ctx))
	}
	return nil
}
