package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// store keeps marks in memory like a disk, and fails on request.
type store struct {
	mu    sync.Mutex
	marks map[string]Token
	fail  error // the error of the next calls; nil for none
	// lie saves the mark nevertheless when fail is set.
	lie   bool
	calls int
	// before runs in each raise, outside the mutex.
	before func(name string, t Token)
}

func newStore() *store { return &store{marks: make(map[string]Token)} }

func (s *store) Raise(_ context.Context, name string, t Token) (Token, error) {
	if s.before != nil {
		s.before(name, t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.fail != nil && !s.lie {
		return 0, s.fail
	}
	s.marks[name] = max(s.marks[name], t)
	return s.marks[name], s.fail
}

func wantStale(t *testing.T, err error, name string, token, highest Token) {
	t.Helper()
	var stale *StaleError
	if !errors.As(err, &stale) || !errors.Is(err, ErrStale) {
		t.Fatalf("got %v, want stale", err)
	}
	if *stale != (StaleError{Name: name, Token: token, Highest: highest}) {
		t.Errorf("got %+v, want %q %d %d", *stale, name, token, highest)
	}
}

func wantNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

// Rule G12: a resource accepts a token only if it is at least the highest token that it has seen.
func TestOlderTokensAreRefused(t *testing.T) {
	for _, marks := range []Marks{nil, newStore()} {
		g, ctx := NewGuard(Config{Marks: marks}), t.Context()
		wantNil(t, g.Check(ctx, "a", 5))
		wantNil(t, g.Check(ctx, "a", 5))
		wantStale(t, g.Check(ctx, "a", 4), "a", 4, 5)
		wantNil(t, g.Check(ctx, "b", 1)) // another name has a mark of its own
		wantNil(t, g.Check(ctx, "a", 6))
		wantStale(t, g.Check(ctx, "a", 5), "a", 5, 6)
		ran := false
		wantStale(t, g.Do(ctx, "a", 5, func(context.Context) error { ran = true; return nil }), "a", 5, 6)
		if ran {
			t.Error("a stale write ran")
		}
		wantNil(t, g.Check(ctx, "a", 1<<64-1))
		wantStale(t, g.Check(ctx, "a", 1<<64-2), "a", 1<<64-2, 1<<64-1)
	}
}

func TestGuardRefusesMalformedTokensAndNames(t *testing.T) {
	g := NewGuard(Config{})
	wantIs(t, g.Check(t.Context(), "a", 0), ErrInvalid)
	wantIs(t, g.Check(t.Context(), "", 1), ErrInvalid)
	wantIs(t, g.Check(t.Context(), strings.Repeat("x", MaxName+1), 1), ErrInvalid)
	wantNil(t, g.Check(t.Context(), strings.Repeat("x", MaxName), 1))
}

// A guard admits no token whose mark is not saved. So a restart forgets no token that was admitted.
func TestMarkIsSavedBeforeItsTokenIsAdmitted(t *testing.T) {
	disk := newStore()
	g, ctx := NewGuard(Config{Marks: disk}), t.Context()
	wantNil(t, g.Check(ctx, "a", 3))

	full := errors.New("disk full")
	for _, lie := range []bool{false, true} {
		disk.fail, disk.lie = full, lie
		ran := false
		err := g.Do(ctx, "a", 4, func(context.Context) error { ran = true; return nil })
		wantIs(t, err, ErrUnsaved)
		wantIs(t, err, full)
		if ran {
			t.Fatal("a write ran although its mark was not saved")
		}
		wantNil(t, g.Check(ctx, "a", 3)) // mark 3 is saved already, and 4 was never admitted
		if !strings.Contains(err.Error(), "nothing was written") || !strings.Contains(err.Error(), "repeat it with the same token") {
			t.Errorf("the error does not say what to do: %v", err)
		}
		disk.fail = nil
	}

	disk.before = func(name string, token Token) {
		if name == "a" && token == 5 && g.places["a"].mark >= 5 {
			t.Error("the lane raised the mark before it was saved")
		}
	}
	wantNil(t, g.Check(ctx, "a", 5))
	again := NewGuard(Config{Marks: disk})
	wantStale(t, again.Check(ctx, "a", 4), "a", 4, 5)
}

func TestMarksThatReturnALowerTokenAdmitNothing(t *testing.T) {
	g := NewGuard(Config{Marks: lossy{}})
	wantIs(t, g.Check(t.Context(), "a", 2), ErrUnsaved)
}

type lossy struct{}

func (lossy) Raise(context.Context, string, Token) (Token, error) { return 1, nil }

// Two guards share marks, as when another server takes over a resource.
func TestGuardsThatShareMarksSeeEachOthersTokens(t *testing.T) {
	disk, ctx := newStore(), t.Context()
	first, second := NewGuard(Config{Marks: disk}), NewGuard(Config{Marks: disk})
	wantNil(t, first.Check(ctx, "a", 5))
	wantStale(t, second.Check(ctx, "a", 4), "a", 4, 5)
	wantNil(t, second.Check(ctx, "a", 7))
	wantStale(t, first.Check(ctx, "a", 6), "a", 6, 7)
	wantStale(t, first.Check(ctx, "a", 5), "a", 5, 7)
}

func TestFullGuardForgetsTheLeastRecentlyUsedName(t *testing.T) {
	ctx := t.Context()
	g := NewGuard(Config{MaxNames: 2})
	wantNil(t, g.Check(ctx, "a", 5))
	wantNil(t, g.Check(ctx, "b", 5))
	wantIs(t, g.Check(ctx, "c", 5), ErrFull)
	wantStale(t, g.Check(ctx, "a", 4), "a", 4, 5)
	wantNil(t, g.Check(ctx, "b", 6))

	disk := newStore()
	g = NewGuard(Config{Marks: disk, MaxNames: 2})
	wantNil(t, g.Check(ctx, "a", 5))
	wantNil(t, g.Check(ctx, "b", 5))
	wantNil(t, g.Check(ctx, "a", 5))
	wantNil(t, g.Check(ctx, "c", 5)) // the guard forgets b
	calls := disk.calls
	wantNil(t, g.Check(ctx, "a", 5))
	if disk.calls != calls {
		t.Error("a was forgotten although b was used less recently")
	}
	wantStale(t, g.Check(ctx, "b", 4), "b", 4, 5)
	if len(g.places) > 2 {
		t.Errorf("the guard remembers %d names; MaxNames is 2", len(g.places))
	}
	wantNil(t, g.Do(ctx, "a", 5, func(ctx context.Context) error {
		return g.Do(ctx, "b", 5, func(ctx context.Context) error {
			wantIs(t, g.Check(ctx, "c", 5), ErrFull) // the guard may not forget a name in use
			return nil
		})
	}))
	disk.fail = errors.New("disk full")
	for i := range 10 {
		wantIs(t, g.Check(ctx, fmt.Sprint("new", i), 5), ErrUnsaved)
	}
	wantNil(t, g.Check(ctx, "a", 5)) // the guard did not forget a known name for them
	if len(g.places) > 2 {
		t.Errorf("names that were not admitted are remembered: %d", len(g.places))
	}
}

// A write that passed the check is still in progress when the next holder writes: the new write must not begin.
func TestNewerTokenWaitsForTheOlderWrite(t *testing.T) {
	for _, marks := range []Marks{nil, newStore()} {
		synctest.Test(t, func(t *testing.T) {
			g, ctx := NewGuard(Config{Marks: marks}), t.Context()
			var order []string
			finish, done := make(chan struct{}), make(chan error, 2)
			go func() {
				done <- g.Do(ctx, "a", 4, func(inside context.Context) error {
					<-inside.Done() // its context ends because it is stale …
					wantStale(t, context.Cause(inside), "a", 4, 5)
					<-finish // … but takes its time
					order = append(order, "old")
					return nil
				})
			}()
			synctest.Wait()
			go func() {
				done <- g.Do(ctx, "a", 5, func(context.Context) error { order = append(order, "new"); return nil })
			}()
			synctest.Wait()
			if len(order) != 0 {
				t.Fatalf("the newer write began before the older one ended: %v", order)
			}
			wantStale(t, g.Check(ctx, "a", 4), "a", 4, 5) // and further older ones do not begin
			wantStale(t, g.Do(ctx, "a", 4, nil), "a", 4, 5)
			close(finish)
			wantNil(t, <-done)
			wantNil(t, <-done)
			if got := strings.Join(order, " "); got != "old new" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestAdvanceWaitsForOlderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ctx := NewGuard(Config{}), t.Context()
		finish, advanced := make(chan struct{}), false
		go func() {
			_ = g.Do(ctx, "a", 4, func(context.Context) error { <-finish; return nil })
		}()
		synctest.Wait()
		go func() {
			wantNil(t, g.Advance(ctx, "a", 5))
			advanced = true
		}()
		synctest.Wait()
		if advanced {
			t.Error("Advance returned while an older write was in progress")
		}
		close(finish)
		synctest.Wait()
		if !advanced {
			t.Error("Advance did not return when the older write ended")
		}
	})
}

func TestInterruptedWriteIsReportedAsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ctx := NewGuard(Config{}), t.Context()
		var err error
		go func() {
			err = g.Do(ctx, "a", 4, func(inside context.Context) error { <-inside.Done(); return inside.Err() })
		}()
		synctest.Wait()
		wantNil(t, g.Advance(ctx, "a", 9))
		synctest.Wait()
		wantStale(t, err, "a", 4, 9)
		wantIs(t, err, context.Canceled)
		broken := errors.New("broken")
		if err := g.Do(ctx, "a", 9, func(context.Context) error { return broken }); err != broken {
			t.Errorf("got %v, want the write's own error as it is", err)
		}
	})
}

// The guard admits token 6 while the write of token 5 still waits for that of token 4.
func TestWaitingTokenIsRefusedWhenANewerOneIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ctx := NewGuard(Config{}), t.Context()
		var order []Token
		var five, six error
		write := func(token Token, finish chan struct{}) error {
			return g.Do(ctx, "a", token, func(context.Context) error {
				<-finish
				order = append(order, token)
				return nil
			})
		}
		old, now := make(chan struct{}), make(chan struct{})
		close(now)
		go func() { _ = write(4, old) }()
		synctest.Wait()
		go func() { five = write(5, now) }()
		synctest.Wait()
		go func() { six = write(6, now) }()
		synctest.Wait()
		wantStale(t, five, "a", 5, 6) // at once: it need not wait for 4
		close(old)
		synctest.Wait()
		wantNil(t, six)
		if fmt.Sprint(order) != "[4 6]" {
			t.Errorf("wrote %v", order)
		}
	})
}

// A write changes two resources, and a new holder takes over one of them.
func TestInterruptedWriteNamesTheResourceThatWasTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ctx := NewGuard(Config{}), t.Context()
		var outer, inner error
		go func() {
			outer = g.Do(ctx, "a", 4, func(ctx context.Context) error {
				inner = g.Do(ctx, "b", 4, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				return inner
			})
		}()
		synctest.Wait()
		wantNil(t, g.Advance(ctx, "a", 5))
		synctest.Wait()
		wantStale(t, outer, "a", 4, 5)
		if inner != context.Canceled {
			t.Errorf("the inner write returned %v", inner)
		}
	})
}

func TestWritesWithOneTokenRunConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, inside := NewGuard(Config{}), make(chan struct{})
		for range 2 {
			go func() {
				wantNil(t, g.Do(t.Context(), "a", 4, func(ctx context.Context) error {
					inside <- struct{}{}
					return ctx.Err()
				}))
			}()
		}
		synctest.Wait()
		if n := g.places["a"].writers; n != 2 {
			t.Errorf("%d writers are inside, want 2", n)
		}
		<-inside
		synctest.Wait() // one write ends, and the other continues
		<-inside
		synctest.Wait()
	})
}

func TestSlowSaveDelaysOnlyItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, slow := newStore(), make(chan struct{})
		disk.before = func(name string, token Token) {
			if name == "a" && token == 5 {
				<-slow
			}
		}
		g, ctx := NewGuard(Config{Marks: disk}), t.Context()
		wantNil(t, g.Check(ctx, "a", 4))
		five, six := ErrFull, ErrFull
		go func() { five = g.Check(ctx, "a", 5) }()
		synctest.Wait()
		go func() { six = g.Check(ctx, "a", 6) }()
		synctest.Wait()
		wantNil(t, g.Check(ctx, "b", 1))
		wantNil(t, g.Check(ctx, "a", 4)) // 5 was not admitted yet
		impatient, cancel := context.WithCancel(ctx)
		var err error
		go func() { err = g.Check(impatient, "a", 5) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		wantIs(t, err, context.Canceled)
		if five != ErrFull || six != ErrFull {
			t.Errorf("admitted before the mark was saved: %v, %v", five, six)
		}
		close(slow)
		synctest.Wait()
		wantNil(t, five)
		wantNil(t, six)
		wantStale(t, g.Check(ctx, "a", 5), "a", 5, 6)
	})
}

func TestEndedContextStopsAWaitingToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, lost := NewGuard(Config{}), errors.New("lease lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		finish := make(chan struct{})
		go func() {
			_ = g.Do(t.Context(), "a", 4, func(context.Context) error { <-finish; return nil })
		}()
		synctest.Wait()
		var err error
		go func() { err = g.Do(ctx, "a", 5, func(context.Context) error { panic("ran") }) }()
		synctest.Wait()
		cancel(lost)
		synctest.Wait()
		wantIs(t, err, context.Canceled)
		wantIs(t, err, lost)
		wantIs(t, g.Check(ctx, "b", 1), lost)
		wantStale(t, g.Check(t.Context(), "a", 4), "a", 4, 5) // 5 was admitted, so 4 stays refused
		close(finish)
		synctest.Wait()
		wantNil(t, g.Advance(t.Context(), "a", 5))
	})
}

func TestPanicsDoNotBlockTheName(t *testing.T) {
	disk := newStore()
	g, ctx := NewGuard(Config{Marks: disk}), t.Context()
	panics := func(f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		f()
	}
	panics(func() { _ = g.Do(ctx, "a", 4, func(context.Context) error { panic("write") }) })
	disk.before = func(string, Token) { panic("raise") }
	panics(func() { _ = g.Check(ctx, "a", 5) })
	disk.before = nil
	wantNil(t, g.Advance(ctx, "a", 5))
}
