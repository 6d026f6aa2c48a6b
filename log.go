package leasekeeper

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// outbox hands items to a function on a goroutine of its own. The function may be slow, or stuck, or call the keeper, and no
// lease may depend on it. Items that do not fit are left out and counted.
type outbox[T any] struct {
	most  int           // bound of the items that wait
	wake  chan struct{} // capacity 1
	ended chan struct{} // closed after the last item
	done  chan struct{} // closed when all items are handed over

	mu     sync.Mutex
	items  []T
	missed int
}

// newOutbox starts an outbox that calls deliver with the items that wait, and with the number of those left out before the
// last of them.
func newOutbox[T any](most int, deliver func(items []T, missed int)) *outbox[T] {
	o := &outbox[T]{most: most, wake: make(chan struct{}, 1), ended: make(chan struct{}), done: make(chan struct{})}
	go o.run(deliver)
	return o
}

// add queues an item. It never blocks.
func (o *outbox[T]) add(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.items) >= o.most {
		o.missed++
		return
	}
	o.items = append(o.items, item)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox[T]) run(deliver func([]T, int)) {
	defer close(o.done)
	for ended := false; !ended; {
		select {
		case <-o.wake:
		case <-o.ended:
			ended = true
		}
		o.mu.Lock()
		items, missed := o.items, o.missed
		o.items, o.missed = nil, 0
		o.mu.Unlock()
		deliver(items, missed)
	}
}

// end waits until all items are handed over, for a second and then until ctx ends. It leaves a stuck function alone.
func (o *outbox[T]) end(ctx context.Context) {
	close(o.ended)
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case <-o.done:
		return
	case <-grace.C:
	}
	select {
	case <-o.done:
	case <-ctx.Done():
	}
}

// maxNotes bounds the lines that wait for a slow log.
const maxNotes = 1024

// note is one line for the log.
type note struct {
	at    time.Time
	level slog.Level
	text  string
	attrs []slog.Attr
}

// writeNotes returns a function that writes lines to a log.
func writeNotes(to slog.Handler) func(notes []note, missed int) {
	return func(notes []note, missed int) {
		if missed > 0 {
			attrs := []slog.Attr{slog.Int("lines", missed)}
			notes = append(notes, note{time.Now(), slog.LevelWarn, "the log is too slow: lines were left out", attrs})
		}
		ctx := context.Background()
		for _, n := range notes {
			if !to.Enabled(ctx, n.level) {
				continue
			}
			r := slog.NewRecord(n.at, n.level, n.text, 0)
			r.AddAttrs(n.attrs...)
			_ = to.Handle(ctx, r) // a log that fails has no one to report to
		}
	}
}

// log queues a line about a lease.
func (k *Keeper) log(level slog.Level, text string, l *Lease, attrs ...slog.Attr) {
	if k.journal == nil {
		return
	}
	about := []slog.Attr{slog.String("name", l.name), slog.Uint64("token", uint64(l.token)), slog.String("holder", k.options.holder.ID)}
	k.journal.add(note{time.Now(), level, text, append(about, attrs...)})
}
