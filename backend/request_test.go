package backend_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// A request ends with each of its causes, whether a goroutine waits for that, asks, or has derived a context
// from it. Its error stays the same.
func TestRequestEndsWithAnyOfItsCauses(t *testing.T) {
	errWhy := errors.New("why")
	type ends struct {
		caller, keeper context.CancelCauseFunc
		r              *backend.Request
	}
	for what, c := range map[string]struct {
		end        func(e ends)
		err, cause error
	}{
		"with the caller":  {func(e ends) { e.caller(errWhy) }, context.Canceled, errWhy},
		"with the keeper":  {func(e ends) { e.keeper(errWhy) }, context.Canceled, context.Canceled},
		"after its time":   {func(ends) { time.Sleep(2 * time.Second) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"when it is over":  {func(e ends) { e.r.End() }, context.Canceled, context.Canceled},
		"that is over":     {func(e ends) { e.r.End(); e.r.End(); e.caller(errWhy) }, context.Canceled, nil},
		"late, and closed": {func(e ends) { time.Sleep(2 * time.Second); e.r.Err(); e.keeper(errWhy) }, context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		for _, waited := range []string{"no goroutine waits", "a goroutine waits", "a context is derived"} {
			t.Run(what+", "+waited, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, endCaller := context.WithCancelCause(t.Context())
					keeper, endKeeper := context.WithCancelCause(t.Context())
					defer endCaller(nil)
					defer endKeeper(nil)
					r := backend.NewRequest(caller, keeper, time.Second)
					defer r.End()
					var ctx context.Context = r
					switch waited {
					case "a goroutine waits":
						r.Done()
					case "a context is derived":
						derived, cancel := context.WithCancel(r)
						defer cancel()
						ctx = derived
					}
					if r.Err() != nil || ctx.Err() != nil {
						t.Fatal("it has ended before")
					}
					c.end(ends{endCaller, endKeeper, r})
					synctest.Wait()
					if !errors.Is(r.Err(), c.err) || !errors.Is(ctx.Err(), c.err) {
						t.Errorf("%v and %v, not %v", r.Err(), ctx.Err(), c.err)
					}
					if cause := context.Cause(ctx); c.cause != nil && cause != c.cause {
						t.Errorf("because of %v, not %v", cause, c.cause)
					}
					<-r.Done()
					endCaller(nil)
					time.Sleep(time.Minute)
					if !errors.Is(r.Err(), c.err) {
						t.Errorf("%v then, after %v", r.Err(), c.err)
					}
				})
			})
		}
	}
}

// It has the values and the deadline of the caller.
func TestRequestHasTheCallersValuesAndDeadline(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		caller, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Second)
		defer cancel()
		for limit, want := range map[time.Duration]time.Duration{
			math.MaxInt64: time.Second, time.Minute: time.Second, time.Millisecond: time.Millisecond,
		} {
			r := backend.NewRequest(caller, t.Context(), limit)
			defer r.End()
			end, ok := r.Deadline()
			if left := time.Until(end); !ok || left != want || r.Left() != want || r.Value(key{}) != "v" {
				t.Errorf("%v are left, and not %v; %v", left, want, r.Value(key{}))
			}
			if a, b := r.Ends(); a != caller.Done() || b != t.Context().Done() {
				t.Error("it ends with something else")
			}
			r.Done()
			if r.Value(key{}) != "v" {
				t.Error("it has forgotten what it knew")
			}
		}
	})
}

// A request without a time limit is not over at once.
func TestRequestWithoutLimitIsNotOver(t *testing.T) {
	r := backend.NewRequest(context.Background(), context.Background(), math.MaxInt64)
	defer r.End()
	if r.Err() != nil || r.Left() < 100*365*24*time.Hour {
		t.Errorf("%v, %v left", r.Err(), r.Left())
	}
}

// A caller whose deadline has passed has no time left.
func TestRequestOfALateCallerHasNoTimeLeft(t *testing.T) {
	caller, cancel := context.WithDeadline(context.Background(), time.Time{})
	defer cancel()
	r := backend.NewRequest(caller, context.Background(), time.Minute)
	defer r.End()
	if r.Err() != context.DeadlineExceeded || r.Left() > 0 {
		t.Errorf("%v, %v left", r.Err(), r.Left())
	}
}

// The Deadline stays the same, and once it has passed the request is over.
func TestRequestDeadlineStaysTheSame(t *testing.T) {
	for range 1000 {
		r := backend.NewRequest(context.Background(), context.Background(), time.Microsecond)
		end, _ := r.Deadline()
		for time.Now().Before(end) {
		}
		err := r.Err()
		again, _ := r.Deadline()
		if err != context.DeadlineExceeded || !again.Equal(end) {
			t.Fatalf("%v at its Deadline, which is %v later then", err, again.Sub(end))
		}
		r.End()
	}
}

// listenedTo is a keeper's context that counts the functions waiting for its end.
type listenedTo struct {
	context.Context
	by int
}

// Done is not nil, or no function would wait.
func (l *listenedTo) Done() <-chan struct{} { return make(chan struct{}) }

func (l *listenedTo) AfterFunc(func()) (stop func() bool) {
	l.by++
	return func() bool { l.by--; return true }
}

// A call of Done after the end of the request leaves nothing behind at the keeper.
func TestRequestLeavesNothingAtItsKeeper(t *testing.T) {
	for what, use := range map[string]func(r *backend.Request){
		"Done is not called": func(r *backend.Request) { r.End() },
		"before":             func(r *backend.Request) { r.Done(); r.End() },
		"after":              func(r *backend.Request) { r.End(); <-r.Done() },
	} {
		keeper := &listenedTo{Context: context.Background()}
		use(backend.NewRequest(t.Context(), keeper, time.Hour))
		if keeper.by != 0 {
			t.Errorf("%s: %d listen yet", what, keeper.by)
		}
	}
}

// A context that is derived from a request ends with it without a goroutine for that.
func TestRequestStartsNoGoroutine(t *testing.T) {
	r := backend.NewRequest(t.Context(), context.Background(), time.Hour)
	defer r.End()
	before := runtime.NumGoroutine()
	for range 100 {
		_, cancel := context.WithCancel(r)
		defer cancel()
	}
	if n := runtime.NumGoroutine() - before; n >= 100 {
		t.Errorf("%d goroutines", n)
	}
}

// If the keeper is closed already, its caller need not wait for the refusal.
func TestRequestOfAClosedKeeperIsOver(t *testing.T) {
	keeper, end := context.WithCancel(t.Context())
	end()
	r := backend.NewRequest(t.Context(), keeper, time.Hour)
	defer r.End()
	select {
	case <-r.Done():
	default:
		t.Error("it goes on")
	}
	if r.Err() != context.Canceled {
		t.Error(r.Err())
	}
}
