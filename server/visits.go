package server

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// visits counts what other members have under way here, on connections that are not this server's.
type visits struct {
	mu     sync.Mutex
	open   int
	closed bool
	idle   chan struct{} // closed when it is closed and nothing is under way
	served uint64

	// cut ends when what is under way is to be cut off.
	cut    context.Context
	cutOff context.CancelCauseFunc
}

func newVisits() *visits {
	v := &visits{idle: make(chan struct{})}
	v.cut, v.cutOff = context.WithCancelCause(context.Background())
	return v
}

// context is that of a visit: it is marked as one, and ends when visits are cut off. The caller must call end.
func (v *visits) context(ctx context.Context) (visit context.Context, end func()) {
	visit, cancel := context.WithCancelCause(admission.MarkPeerRequest(ctx))
	leave := lifetime.EndWith(v.cut, cancel)
	return visit, func() { leave(); cancel(nil) }
}

// enter takes one on, unless the server stops: then another member leads, or soon will.
func (v *visits) enter() (leave func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, replica.ErrNotLeader
	}
	v.open++
	v.served++
	return v.leave, nil
}

func (v *visits) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open--; v.open == 0 && v.closed {
		close(v.idle)
	}
}

// count returns how many were taken on.
func (v *visits) count() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.served
}

// close takes no more on, and waits for those under way. When ctx ends they are cut off.
func (v *visits) close(ctx context.Context) error {
	v.mu.Lock()
	if !v.closed {
		v.closed = true
		if v.open == 0 {
			close(v.idle)
		}
	}
	v.mu.Unlock()
	select {
	case <-v.idle:
		return nil
	case <-ctx.Done():
	}
	v.cutOff(lifetime.ErrStopping)
	<-v.idle
	return fmt.Errorf("server: requests of other members were cut off while stopping: %w", context.Cause(ctx))
}

// What the trailer says that a member sends with an error.
const (
	verdictKey       = "leasekeeper-member"
	verdictSaid      = "said"      // the status is what the client is told
	verdictElsewhere = "elsewhere" // nothing has happened; who leads may do it
)

// verdict is what to say about an error beside its status.
func verdict(err error) metadata.MD {
	if isElsewhere(err) {
		return metadata.Pairs(verdictKey, verdictElsewhere)
	}
	return metadata.Pairs(verdictKey, verdictSaid)
}

// verdictOf returns what a member has said, "" if it was not a member who spoke.
func verdictOf(trailer metadata.MD) string { return said(trailer, verdictKey) }

// said returns the one value of a key, "" if there is none, or more.
func said(trailer metadata.MD, key string) string {
	if values := trailer.Get(key); len(values) == 1 {
		return values[0]
	}
	return ""
}

// appliedKey is what the trailer of an answer calls the log entry that the leader's state was at then.
const appliedKey = "leasekeeper-applied"

func appliedMark(index uint64) metadata.MD {
	return metadata.Pairs(appliedKey, strconv.FormatUint(index, 10))
}

// appliedIn returns that entry, 0 if the leader does not say.
func appliedIn(trailer metadata.MD) uint64 {
	index, err := strconv.ParseUint(said(trailer, appliedKey), 10, 64)
	if err != nil {
		return 0
	}
	return index
}
