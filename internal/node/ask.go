package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// ErrStopped means that the member has stopped and did not accept the request.
var ErrStopped = errors.New("server stopped")

// caller receives the answers to its requests. The goroutine that holds owner calls it, so it must not block. A reply
// passed to it is only valid during the call.
type caller interface {
	deliver(replica.Effect)
	deliverReply(*replica.Reply)
}

// callerFunc is a caller with one request.
type callerFunc func(replica.Effect)

func (h callerFunc) deliver(e replica.Effect)      { h(e) }
func (h callerFunc) deliverReply(r *replica.Reply) { h(*r) }

// submission is an event on its way to the member's goroutine, with the recipient of its answer.
type submission struct {
	event     replica.Event
	id        uint64
	following int // number of IDs after id that have the same caller
	caller    caller
	look      func(*replica.Replica, clock.Instant)
	bulk      int // size in bytes of a bulk command; 0 for all other events
}

// clientKey is the key of the client in the context of a bulk command.
type clientKey struct{}

// WithClient returns a context that names the client of a bulk command. Clients take turns with bulk commands. All
// commands without a name count as those of one client.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// ClientOf returns the client that [WithClient] named, or "" if there is none.
func ClientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}

// change submits a command and waits for its outcome.
func change[T replica.Result](ctx context.Context, n *Node, command entry.Command) (replica.Header, T, error) {
	id := n.nextID.Add(1)
	return typed[T](n.ask(ctx, id, replica.Request{ID: id, Command: command, Caller: callerOf(ctx)}))
}

func inspect[T replica.Result](ctx context.Context, n *Node, query replica.Query) (replica.Header, T, error) {
	id := n.nextID.Add(1)
	header, result, err := typed[T](n.ask(ctx, id, replica.Inspection{ID: id, Query: query}))
	return header, result, readError(err)
}

// readError replaces an unknown outcome by its cause, for requests that change nothing.
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

// ask submits an event and waits for the one effect that answers it.
func (n *Node) ask(ctx context.Context, id uint64, event replica.Event) (replica.Effect, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select { // a stopped member queues nothing, even if there is room
	case <-n.idle:
		return nil, ErrStopped
	default:
	}
	result := make(chan replica.Effect, 1)
	call := submission{event: event, id: id, caller: callerFunc(func(e replica.Effect) { delete(n.calls, id); result <- e })}
	if n.answerFromMemory(&call) {
		return <-result, nil
	}
	intake := n.intake
	if request, ok := event.(replica.Request); ok && entry.IsBulk(request.Command) {
		intake, call.bulk = n.bulk, entry.ApproximateBytes(request.Command)
		call.event = replica.BulkRequest{Request: request, Client: ClientOf(ctx)}
	}
	if err := n.enqueue(ctx, intake, call); err != nil {
		return nil, err
	}
	select {
	case effect := <-result:
		return effect, nil
	case <-ctx.Done():
		return nil, &unknownOutcome{ctx.Err()}
	case <-n.idle:
	}
	select { // the answer may have come just before the end
	case effect := <-result:
		return effect, nil
	default:
		return nil, &unknownOutcome{ErrStopped}
	}
}

// enqueue hands a submission to the member's goroutine. It waits for room until ctx ends or the member handles no more events.
func (n *Node) enqueue(ctx context.Context, intake chan<- submission, call submission) error {
	select { // one channel alone: a wait for several also locks idle, which all callers share
	case intake <- call:
		return nil
	default:
	}
	select {
	case intake <- call:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.idle:
		return ErrStopped
	}
}

// unknownOutcome is [replica.ErrUnknownOutcome] with the reason why the caller stopped waiting.
type unknownOutcome struct{ cause error }

func (u *unknownOutcome) Error() string {
	return fmt.Sprintf("%v (%v)", replica.ErrUnknownOutcome, u.cause)
}
func (u *unknownOutcome) Unwrap() []error { return []error{replica.ErrUnknownOutcome, u.cause} }
