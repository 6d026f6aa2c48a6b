//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// fakeSend records what a notifier sends. Each send waits for proceed, or until its context ends.
type fakeSend struct {
	sent    chan []string
	proceed chan struct{}
}

func newFakeSend(t *notifier) *fakeSend {
	w := &fakeSend{make(chan []string, 100), make(chan struct{}, 100)}
	t.send = func(ctx context.Context, names []string) error {
		w.sent <- names
		select {
		case <-w.proceed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w
}

func (w *fakeSend) next(t *testing.T) []string {
	t.Helper()
	select {
	case names := <-w.sent:
		return names
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is sent")
		return nil
	}
}

// Names that are added during a send are sent together afterwards: each name once, in order. If they are too many, the send
// says that any name may have changed.
func TestNamesAreSentTogether(t *testing.T) {
	notifier := newNotifier()
	w := newFakeSend(notifier)
	notifier.add("x", true)
	if names := w.next(t); !slices.Equal(names, []string{"x"}) {
		t.Fatal(names)
	}
	for _, name := range []string{"b", "a", "b", "x"} {
		notifier.add(name, true)
	}
	w.proceed <- struct{}{}
	if names := w.next(t); !slices.Equal(names, []string{"b", "a", "x"}) {
		t.Fatal(names)
	}
	for i := range 3 * maxNames {
		notifier.add(fmt.Sprint(i), true)
	}
	w.proceed <- struct{}{}
	if names := w.next(t); len(names) > maxNames || !slices.Contains(names, "") {
		t.Fatalf("%d names: %q", len(names), names)
	}
	w.proceed <- struct{}{}
	notifier.close(t.Context(), func() {})
	notifier.add("late", true)
	if notifier.done != nil || len(notifier.names) > 0 {
		t.Error("a closed notifier has names to send")
	}
}

// A name that got a holder is sent too, even if no name is vacant.
func TestNewHoldersAreSentToo(t *testing.T) {
	notifier := newNotifier()
	w := newFakeSend(notifier)
	w.proceed <- struct{}{}
	notifier.add("x", false)
	if names := w.next(t); !slices.Equal(names, []string{"x"}) {
		t.Fatal(names)
	}
	notifier.close(t.Context(), func() {})
}

// close sends the last names. A send that takes too long is cut off, and the goroutine has ended when close returns.
func TestCloseSendsTheLastNames(t *testing.T) {
	notifier := newNotifier()
	ctx, cut := context.WithCancel(t.Context())
	heard := errors.New("nothing was sent")
	notifier.send = func(context.Context, []string) error {
		select {
		case <-time.After(50 * time.Millisecond): // a slow server
			heard = nil
		case <-ctx.Done():
			heard = errors.New("the send was cut off at once")
		}
		return heard
	}
	notifier.add("x", false)
	notifier.close(t.Context(), cut)
	if heard != nil {
		t.Error(heard)
	}

	notifier = newNotifier()
	ctx, cut = context.WithCancel(t.Context())
	ended := make(chan struct{})
	notifier.send = func(context.Context, []string) error {
		defer close(ended)
		<-ctx.Done()
		return ctx.Err()
	}
	notifier.add("x", true)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	notifier.close(over, cut)
	select {
	case <-ended:
	default:
		t.Error("the send goes on after close")
	}
	notifier.close(t.Context(), cut) // closing twice is allowed
}

// A release is notified even if the releasing process closes its store at once. The notifier leaves the settings of the
// connection unchanged.
func TestReleaseBeforeCloseIsNotified(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	listener := opened(t, database, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	names := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() { _ = listener.Listen(ctx, func(name string) { names <- name }) })
	defer all.Wait()
	defer cancel()
	<-names // the first call of changed: it listens
	p := pool(t, database, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := record("jobs/x", 1)
	r.Holder = ""
	swap(t, s, claim.Op{}, r)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-names:
		if name != "jobs/x" {
			t.Errorf("the notification is about %q", name)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no notification came")
	}
	var commit string
	if err := p.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit')").Scan(&commit); err != nil || commit != "on" {
		t.Errorf("synchronous_commit is %q, %v", commit, err)
	}
}
