package leasekeeper_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func TestLogReportsTheStatesOfLeases(t *testing.T) {
	bubble(t, func(w *world) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		k, b := w.keeper("a", leasekeeper.WithLogger(logger))
		l := w.must(k.Acquire(w.Context(), "released"))
		if err := l.Release(w.Context()); err != nil {
			w.Error(err)
		}
		l = w.must(k.Acquire(w.Context(), "lost"))
		time.Sleep(10 * ttl)
		remove := b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Renew})
		// A failure for more than half of the TTL, but less than the time that is left just before a renewal.
		time.Sleep(11 * ttl / 20)
		remove()
		time.Sleep(ttl)
		defer b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Renew})()
		<-l.Context().Done()
		synctest.Wait()
		var got []string
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, "token=") || !strings.Contains(line, "holder=a") {
				w.Error(line)
			}
			_, line, _ = strings.Cut(line, "level=")
			line, _, _ = strings.Cut(line, " token=")
			got = append(got, line)
		}
		want := []string{
			`INFO msg="lease acquired" name=released`, `INFO msg="lease released" name=released`,
			`INFO msg="lease acquired" name=lost`,
			`WARN msg="lease in doubt: not renewed for half of its time" name=lost`, `INFO msg="lease renewed again" name=lost`,
			`WARN msg="lease in doubt: not renewed for half of its time" name=lost`, `ERROR msg="lease lost" name=lost`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			w.Errorf("logged:\n%s\nnot:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// careful is a backend that returns a warning about its store.
type careful struct{ backend.Backend }

func (careful) Cautions() []string { return []string{"the disk is a candle"} }

func TestLogReportsTheWarningsOfTheStore(t *testing.T) {
	var out bytes.Buffer
	k, err := leasekeeper.New(careful{memory.New().Backend()}, leasekeeper.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `level=WARN msg="the disk is a candle"`) {
		t.Errorf("logged: %q", text)
	}
}

// pipe is a log that is no longer read once it is full: its writer is stuck.
type pipe struct {
	slog.Handler
	full chan struct{} // closed when the log is read again; nil while there is room
}

func (p *pipe) Enabled(context.Context, slog.Level) bool { return true }

func (p *pipe) Handle(context.Context, slog.Record) error {
	if p.full != nil {
		<-p.full
	}
	return nil
}

// A stuck log delays no renewal, no end of a context and no call.
func TestStuckLogDelaysNothing(t *testing.T) {
	bubble(t, func(w *world) {
		stuck := &pipe{full: make(chan struct{})}
		k, b := w.keeper("a", leasekeeper.WithLogger(slog.New(stuck)))
		defer close(stuck.full)
		got := make(chan *leasekeeper.Lease, 1)
		go func() {
			l, err := k.Acquire(w.Context(), "x")
			if err != nil {
				w.Error(err)
			}
			got <- l
		}()
		synctest.Wait()
		var l *leasekeeper.Lease
		select {
		case l = <-got:
		default:
			w.Fatal("Acquire waits for the log")
		}
		time.Sleep(10 * ttl)
		if err := l.Check(); err != nil {
			w.Fatal(err)
		}
		defer b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})()
		time.Sleep(ttl)
		select {
		case <-l.Context().Done():
		default:
			w.Error("the lease is past its deadline, and its context goes on")
		}
		// The queue of lines is bounded, however long the log is stuck.
		for range 5000 {
			l, err := k.TryAcquire(w.Context(), "y")
			if err != nil {
				w.Fatal(err)
			}
			if err := l.Release(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
	})
}
