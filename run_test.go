package leasekeeper_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

var errFunc = errors.New("the function failed")

// stalled drops the renewals of a client, so that it loses its leases.
func stalled(b *memory.Backend) (remove func()) {
	return b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})
}

func TestRunReturnsWhatTheFunctionReturned(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		for _, want := range []error{nil, errFunc} {
			err := k.Run(w.Context(), "x", func(ctx context.Context, l *leasekeeper.Lease) error {
				if ctx != l.Context() || l.Check() != nil {
					w.Errorf("the function got %v, %v", ctx, l)
				}
				time.Sleep(3 * ttl)
				w.holder("x", "a")
				return want
			})
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				w.Errorf("%v, and not %v", err, want)
			}
			w.free("x")
		}
	})
}

func TestRunWaitsForItsTurn(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		for i := range time.Duration(20) {
			wait := 3 * i * (ttl - time.Second)
			l := w.must(a.Acquire(w.Context(), "x"))
			w.is(b.Run(w.Context(), "x", nil, leasekeeper.NoWait()), leasekeeper.ErrHeld)
			w.is(a.Run(l.Context(), "x", nil), leasekeeper.ErrHeld)
			time.AfterFunc(wait, func() { _ = l.Release(context.Background()) })
			ran := false
			late := took(func() {
				if err := b.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error { ran = true; return nil }); err != nil {
					w.Error(err)
				}
			})
			if !ran || late != wait {
				w.Errorf("ran: %v after %v, not %v", ran, late, wait)
			}
		}
	})
}

// A function may continue after the deadline. Then Run does not release the lease, and returns both errors.
func TestRunReturnsTheLossOfAFunctionThatRunsOn(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(w *world, b *memory.Backend)
	}{
		{"the store stalls", func(_ *world, b *memory.Backend) { stalled(b) }},
		{"the ownership is deleted", func(w *world, _ *memory.Backend) { w.store.Delete("x") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				a, client := w.keeper("a")
				b, _ := w.keeper("b")
				var next *leasekeeper.Lease
				err := a.Run(w.Context(), "x", func(ctx context.Context, l *leasekeeper.Lease) error {
					c.lose(w, client)
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, leasekeeper.ErrLost) {
						w.Errorf("the cause: %v", cause)
					}
					next = w.must(b.Acquire(w.Context(), "x"))
					return errFunc
				})
				w.is(err, leasekeeper.ErrLost)
				w.is(err, errFunc)
				time.Sleep(2 * ttl)
				w.must(next, nil)
				w.holder("x", "b")
				err = a.Run(w.Context(), "y", func(ctx context.Context, l *leasekeeper.Lease) error {
					w.store.Delete("y")
					<-ctx.Done()
					return context.Cause(ctx)
				})
				if w.is(err, leasekeeper.ErrLost); err == nil || strings.Count(err.Error(), "lease lost (token") != 1 {
					w.Errorf("the error repeats a text: %v", err)
				}
				err = a.Run(w.Context(), "z", func(ctx context.Context, l *leasekeeper.Lease) error {
					w.store.Delete("z")
					<-ctx.Done()
					return nil
				})
				w.is(err, leasekeeper.ErrLost)
			})
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(ttl, func() { cancel(why) })
		err := k.Run(ctx, "x", func(ctx context.Context, l *leasekeeper.Lease) error {
			<-ctx.Done()
			time.Sleep(2 * ttl) // cleans up; the keeper keeps the lease meanwhile
			if err := l.Check(); err != nil {
				w.Error(err)
			}
			w.holder("x", "a")
			return context.Cause(ctx)
		})
		w.is(err, why)
		w.free("x")
		w.is(k.Run(ctx, "x", nil), context.Canceled)
	})
}

// The panic continues, and the name is free, because the function has ended.
func TestRunReleasesTheNameWhenTheFunctionPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper("a")
				var recovered any
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recovered = recover() }()
					_ = k.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error {
						end()
						return nil
					})
				}()
				<-done
				if (recovered == "oh") != (name == "panic") {
					w.Errorf("recovered %v", recovered)
				}
				w.free("x")
			})
		})
	}
}

func TestRunReportsAnUnconfirmedRelease(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		remove := b.Inject(memory.Fault{Kind: memory.LoseRequest, Op: memory.Release})
		var err error
		late := took(func() {
			err = k.Run(w.Context(), "x", func(context.Context, *leasekeeper.Lease) error { return errFunc })
		})
		w.is(err, errFunc)
		w.is(err, leasekeeper.ErrUnknownOutcome)
		if late > 10*time.Second {
			w.Errorf("waited for %v", late)
		}
		remove()
		time.Sleep(3 * time.Second) // the keeper keeps trying to release it
		w.free("x")
	})
}

func TestRunAllowsItsFunctionToRelease(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		err := k.Run(w.Context(), "x", func(ctx context.Context, l *leasekeeper.Lease) error {
			if err := l.Release(w.Context()); err != nil {
				w.Error(err)
			}
			<-ctx.Done()
			w.is(context.Cause(ctx), leasekeeper.ErrLost)
			return nil
		})
		if err != nil {
			w.Error(err)
		}
	})
}

func TestCampaignRunsAgainAfterLossAndRelease(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		tenures := 0
		err := k.Campaign(ctx, "x", func(ctx context.Context, l *leasekeeper.Lease) error {
			switch tenures++; tenures {
			case 1: // returns early
				return nil
			case 2: // overruns
				remove := stalled(b)
				<-ctx.Done()
				time.Sleep(ttl)
				remove()
				return errFunc
			case 3: // the store goes away for long
				remove := w.store.Inject(memory.Fault{Kind: memory.Refuse})
				time.AfterFunc(10*ttl, remove)
				<-ctx.Done()
				return nil
			case 4: // releases by itself
				return l.Release(w.Context())
			case 5: // panics are not its affair
				cancel()
			}
			<-ctx.Done()
			return nil
		})
		w.is(err, context.Canceled)
		if tenures != 5 {
			w.Errorf("%d tenures", tenures)
		}
		w.free("x")
	})
}

func TestCampaignEndsWithItsContextOrAnError(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		fails := func(context.Context, *leasekeeper.Lease) error { return errFunc }
		w.is(k.Campaign(w.Context(), "x", fails), errFunc)
		w.free("x")
		ctx, cancel := context.WithCancel(w.Context())
		err := k.Campaign(ctx, "x", func(ctx context.Context, _ *leasekeeper.Lease) error {
			cancel()
			<-ctx.Done()
			return errFunc
		})
		w.is(err, errFunc)
		w.is(k.Campaign(ctx, "x", fails), context.Canceled)
		l := w.must(k.Acquire(w.Context(), "y"))
		w.is(k.Campaign(l.Context(), "y", fails), leasekeeper.ErrHeld) // it would wait for its own caller
		_ = l.Release(w.Context())
	})
}

// A function that returns at once does not make Campaign send requests without a pause.
func TestCampaignDoesNotSpin(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		var runs [2]atomic.Int32
		ctx, cancel := context.WithTimeout(w.Context(), 10*ttl)
		defer cancel()
		for i, k := range []*leasekeeper.Keeper{a, b} {
			go func() {
				_ = k.Campaign(ctx, "x", func(context.Context, *leasekeeper.Lease) error {
					runs[i].Add(1)
					return nil
				})
			}()
		}
		<-ctx.Done()
		synctest.Wait()
		for i := range runs {
			if n := runs[i].Load(); n < 20 || n > 200 {
				w.Errorf("candidate %d had %d tenures", i, n)
			}
		}
	})
}

// sick is a backend with nonsensical answers.
type sick struct {
	*memory.Backend
	page  []backend.Info
	grant backend.Grant

	awaits int
}

func (s *sick) List(context.Context, string, string, int) ([]backend.Info, error) { return s.page, nil }

func (s *sick) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	l, _, err := s.Backend.Claim(ctx, c)
	return l, s.grant, err
}

func (s *sick) Await(context.Context, backend.Lease) (backend.Grant, error) {
	s.awaits++
	return backend.Grant{}, []error{nil, context.DeadlineExceeded, backend.ErrContention}[s.awaits%3]
}

func (s *sick) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	report(-1, backend.Renewal{TTL: time.Hour})
	report(len(leases), backend.Renewal{TTL: time.Hour})
	for i := range leases {
		report(i, backend.Renewal{TTL: ttl})
		report(i, backend.Renewal{Err: errors.New("and again")})
	}
	go report(0, backend.Renewal{TTL: time.Hour})
	return nil
}

func TestInvalidAnswersOfTheStoreAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		page := make([]backend.Info, 256)
		for i := range page {
			page[i].Name = "same"
		}
		b := &sick{Backend: w.store.Backend(), page: page, grant: backend.Grant{Held: true, Token: 1}}
		k := w.on(b, "a")
		n := 0
		for _, err := range k.List(w.Context(), "") {
			if n++; n > 10 {
				w.Fatal("a list without end")
			}
			if err != nil {
				w.is(err, leasekeeper.ErrCorrupt)
			}
		}
		_, err := k.TryAcquire(w.Context(), "no/ttl")
		w.is(err, leasekeeper.ErrUnavailable)
		b.grant.Held = false
		_, err = k.TryAcquire(w.Context(), "in/queue")
		w.is(err, leasekeeper.ErrHeld)
		b.grant.TTL = ttl
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err = k.Acquire(ctx, "never/ready")
		w.is(err, context.DeadlineExceeded)
		if ctx.Err() == nil || b.awaits > 200 {
			w.Errorf("awaited %d times", b.awaits)
		}
		b.grant = backend.Grant{Held: true, Token: 1, TTL: ttl}
		l := w.must(k.TryAcquire(w.Context(), "x"))
		time.Sleep(3 * ttl)
		if left := l.Remaining(); left > ttl {
			w.Errorf("remaining %v of %v", left, ttl)
		}
		w.must(l, nil)
		w.free("no/ttl")
		w.free("in/queue")
	})
}
