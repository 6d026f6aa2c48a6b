package leasekeeper

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxNotes bounds the lines that wait for a slow log.
const maxNotes = 1024

// note is one line for the log.
type note struct {
	at    time.Time
	level slog.Level
	text  string
	attrs []slog.Attr
}

// journal writes lines to a log on a goroutine of its own. A log may be slow, or stuck, or call the keeper, and no lease
// may depend on it. Lines that do not fit are left out and counted.
type journal struct {
	handler slog.Handler
	wake    chan struct{} // capacity 1
	ended   chan struct{} // closed after the last line
	done    chan struct{} // closed when all lines are written

	mu     sync.Mutex
	notes  []note
	missed int
}

func newJournal(to slog.Handler) *journal {
	j := &journal{handler: to, wake: make(chan struct{}, 1), ended: make(chan struct{}), done: make(chan struct{})}
	go j.run()
	return j
}

// add queues a line. It never blocks.
func (j *journal) add(n note) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.notes) >= maxNotes {
		j.missed++
		return
	}
	j.notes = append(j.notes, n)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *journal) run() {
	defer close(j.done)
	for ended := false; !ended; {
		select {
		case <-j.wake:
		case <-j.ended:
			ended = true
		}
		j.write()
	}
}

// write writes the lines that wait.
func (j *journal) write() {
	j.mu.Lock()
	notes, missed := j.notes, j.missed
	j.notes, j.missed = nil, 0
	j.mu.Unlock()
	if missed > 0 {
		attrs := []slog.Attr{slog.Int("lines", missed)}
		notes = append(notes, note{time.Now(), slog.LevelWarn, "the log is too slow: lines were left out", attrs})
	}
	ctx := context.Background()
	for _, n := range notes {
		if !j.handler.Enabled(ctx, n.level) {
			continue
		}
		r := slog.NewRecord(n.at, n.level, n.text, 0)
		r.AddAttrs(n.attrs...)
		_ = j.handler.Handle(ctx, r) // a log that fails has no one to report to
	}
}

// end waits until all lines are written, for a second and then until ctx ends. It leaves a stuck log alone.
func (j *journal) end(ctx context.Context) {
	close(j.ended)
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case <-j.done:
		return
	case <-grace.C:
	}
	select {
	case <-j.done:
	case <-ctx.Done():
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
