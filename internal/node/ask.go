package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// ErrStopped says that the member has stopped and took nothing on.
var ErrStopped = errors.New("server stopped")

// caller hears what became of what it asked for, from who owns the replica, and must not block. A reply stays the
// replica's.
type caller interface {
	hear(replica.Effect)
	hearReply(*replica.Reply)
}

// hearing is a caller that asked for one thing.
type hearing func(replica.Effect)

func (h hearing) hear(e replica.Effect)      { h(e) }
func (h hearing) hearReply(r *replica.Reply) { h(*r) }

// submission is an event on its way to the member's goroutine, with the place for its answer.
type submission struct {
	event  replica.Event
	id     uint64
	others int // IDs that follow id and are answered in the same way
	caller caller
	look   func(*replica.Replica, clock.Instant)
	bulk   int // the size of a bulk command; 0 for everything else
}

// change submits a command and waits for what became of it.
func change[T replica.Result](ctx context.Context, n *Node, command entry.Command) (replica.Header, T, error) {
	id := n.nextID.Add(1)
	return typed[T](n.ask(ctx, id, replica.Request{ID: id, Command: command}))
}

func inspect[T replica.Result](ctx context.Context, n *Node, query replica.Query) (replica.Header, T, error) {
	id := n.nextID.Add(1)
	header, result, err := typed[T](n.ask(ctx, id, replica.Inspection{ID: id, Query: query}))
	return header, result, readError(err)
}

// readError is for those who change nothing: for them an unknown outcome is just no answer.
func readError(err error) error {
	var unknown *unknownOutcome
	if errors.As(err, &unknown) {
		return unknown.cause
	}
	return err
}

func typed[T replica.Result](effect replica.Effect, err error) (replica.Header, T, error) {
	var none T
	if err != nil {
		return replica.Header{}, none, err
	}
	reply := effect.(replica.Reply)
	if reply.Err != nil {
		return replica.Header{}, none, reply.Err
	}
	result, _ := reply.Result.(T)
	return reply.Header, result, nil
}

// ask submits an event that is answered by one effect.
func (n *Node) ask(ctx context.Context, id uint64, event replica.Event) (replica.Effect, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select { // a stopped member takes nothing on, even if there is room
	case <-n.done:
		return nil, ErrStopped
	default:
	}
	result := make(chan replica.Effect, 1)
	call := submission{event: event, id: id, caller: hearing(func(e replica.Effect) { delete(n.calls, id); result <- e })}
	if n.atOnce(&call) {
		return <-result, nil
	}
	intake := n.intake
	if request, ok := event.(replica.Request); ok && entry.IsBulk(request.Command) {
		intake, call.bulk = n.bulk, entry.ApproximateBytes(request.Command)
	}
	select {
	case intake <- call:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-n.done:
		return nil, ErrStopped
	}
	select {
	case effect := <-result:
		return effect, nil
	case <-ctx.Done():
		return nil, &unknownOutcome{ctx.Err()}
	case <-n.done:
		select { // the answer may have come with the end
		case effect := <-result:
			return effect, nil
		default:
			return nil, &unknownOutcome{ErrStopped}
		}
	}
}

// unknownOutcome is [ErrUnknownOutcome] with the reason why nobody waited for the outcome.
type unknownOutcome struct{ cause error }

func (u *unknownOutcome) Error() string {
	return fmt.Sprintf("%v (%v)", replica.ErrUnknownOutcome, u.cause)
}
func (u *unknownOutcome) Unwrap() []error { return []error{replica.ErrUnknownOutcome, u.cause} }
