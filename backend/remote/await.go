package remote

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// turn receives the second answer to a claim that waits in the queue. It outlives the call of Claim. It ends when the answer
// has come, its stream ends, or quit is called.
type turn struct {
	number int64       // of the endpoint
	quit   func(error) // ends the turn with an error
	done   chan struct{}

	// Set when done is closed.
	granted reply
	err     error // why granted is empty; nil if it is not
}

var errReplaced = errors.New("another stream has taken the place of this one")

// end ends the turn. It is called once.
func (t *turn) end(granted reply, err error) {
	if err == nil && (granted.state != leasekeeperv1.AcquireResponse_HELD || granted.token == 0 || granted.ttlMs <= 0) {
		err = errNonsense
	}
	if err != nil {
		granted = reply{}
	}
	t.granted, t.err = granted, err
	close(t.done)
}

// usable reports whether Await can use the turn: it has the answer, or its stream is open on the preferred endpoint.
func (t *turn) usable(preferred int64) bool {
	select {
	case <-t.done:
		return t.err == nil
	default:
		return t.number == preferred
	}
}

// listen returns a turn that reads the rest of an Acquire stream.
func (b *Backend) listen(s *acquireStream, cancel context.CancelCauseFunc, number, lease int64) *turn {
	t := &turn{number: number, quit: cancel, done: make(chan struct{})}
	read := func() {
		defer cancel(nil)
		r, err := s.reply(lease)
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, "the server ended the stream before the turn of the claim came")
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
	own, err := endpoints.Known[*lease](b, l)
	if err != nil {
		return backend.Grant{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return backend.Grant{}, err
	}
	defer end()
	what := "waiting for " + own.Name()
	retries := b.endpoints.Retries(what)
	for {
		retries.Begin()
		r, err := b.awaitTurn(ctx, own)
		switch {
		case err == nil && own.continues(r):
			return backend.Grant{Held: true, Token: r.token, TTL: ttlUnit.Duration(r.ttlMs)}, nil
		case err == nil:
			return backend.Grant{}, b.undoReclaim(ctx, own, what)
		case errors.Is(err, errReplaced):
			continue
		}
		if err := retries.After(ctx, err); err != nil {
			return backend.Grant{}, err
		}
	}
}

// awaitTurn returns the answer that the claim has its turn: from the claim's turn, or by making the same claim again.
func (b *Backend) awaitTurn(ctx context.Context, l *lease) (reply, error) {
	t := l.turn.Load()
	if _, preferred := b.endpoints.Endpoint(); t == nil || !t.usable(preferred) {
		r, fresh, o := b.acquire(ctx, &claimArgs{
			name: l.wire, lease: l.id, ttlMs: ttlUnit.Count(l.ttl), holder: backend.Holder{ID: l.holder}, wait: true,
		})
		if o.Err != nil {
			return reply{}, o.Err
		}
		if r.state == leasekeeperv1.AcquireResponse_HELD || !l.continues(r) {
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
		r := t.granted
		r.overtaken = true // perhaps, while it waited for the turn
		return r, t.err
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// continues reports whether a reply is about the tenure of the lease, and notes its token. It is about another one if the
// server has forgotten the lease and made it again.
func (l *lease) continues(r reply) bool {
	known := l.token()
	if r.token != known && (!r.overtaken || r.token < known) {
		return false
	}
	l.newest.Store(uint64(r.token))
	return true
}

// undoReclaim returns the error for a lease that the server no longer knows. Claiming it again has made another tenure, which
// undoReclaim releases.
func (b *Backend) undoReclaim(ctx context.Context, l *lease, what string) error {
	if o := b.releaseLease(ctx, l); o.Err != nil {
		return o.Read(what) // another call of Await tries again
	}
	return fmt.Errorf("%w: %s: the server no longer knows the lease", backend.ErrLost, what)
}
