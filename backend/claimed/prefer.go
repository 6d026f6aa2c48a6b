package claimed

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Prefer implements [backend.Preferrer], if the store is a [claim.Preferrer]. It chooses among the processes that wait in
// the store's queue. A process shows the holder of the waiter for which it has added its ticket.
func (b *Backend) Prefer(ctx context.Context, name, to string) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	store, ok := b.store.(claim.Preferrer)
	if !ok || !store.Prioritizes() {
		return &backend.UnsupportedError{Backend: b.Scheme(), What: backend.Prefer}
	}
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	found := false
	if to != "" {
		found, err = store.Prefer(ctx, name, to)
	}
	if err = b.callError(ctx, err); errors.Is(err, backend.ErrUnsupported) { // the user may not write tickets
		return &backend.UnsupportedError{Backend: b.Scheme(), What: backend.Prefer, Instead: err.Error()}
	}
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s: %w: no process waits in the queue of %s for %s", b.Scheme(), backend.ErrInvalid, name, backend.Printable(to))
	}
	b.storeQueue.overtaken(name, to)
	return nil
}

// overtaken takes in that the ticket of a holder was moved to the front of a queue. This process does not claim the name
// on what it saw before, unless it waits for that holder.
func (r *storeQueue) overtaken(name, by string) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if k := r.tickets[name]; k != nil && k.holder != by {
		k.turn, k.ahead = false, max(k.ahead, 1)
		r.wakeWorker()
	}
}
