package otellease_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	otellease "github.com/leasekeeper/leasekeeper/contrib/otel"
)

func TestRunHasSpansOfWaitAndWork(t *testing.T) {
	bubble(t, func(w *world) {
		other, _ := w.keeper("b")
		k, _ := w.traced("a")
		theirs, err := other.Acquire(w.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { _ = theirs.Release(w.Context()) })
		ctx, program := w.span()
		var token leasekeeper.Token
		err = w.tracing.Run(ctx, k, "x", func(ctx context.Context, l *leasekeeper.Lease) error {
			token = l.Token()
			_, work := w.sdk.Tracer("test").Start(ctx, "work")
			defer work.End()
			time.Sleep(time.Hour)
			return nil
		})
		program.End()
		run, acquire, work := w.one("leasekeeper.run"), w.one("leasekeeper.acquire"), w.one("work")
		if err != nil || run.Parent.SpanID() != program.SpanContext().SpanID() ||
			acquire.Parent.SpanID() != run.SpanContext.SpanID() || work.Parent.SpanID() != run.SpanContext.SpanID() {
			t.Errorf("%v, and the spans are\n%+v\n%+v\n%+v", err, run, acquire, work)
		}
		for _, span := range []struct {
			took time.Duration
			s    []attribute.KeyValue
		}{
			{run.EndTime.Sub(run.StartTime) - time.Hour, run.Attributes},
			{acquire.EndTime.Sub(acquire.StartTime), acquire.Attributes},
		} {
			want := []attribute.KeyValue{
				attribute.String("leasekeeper.name", "x"), attribute.Int64("leasekeeper.token", int64(token)),
				attribute.Float64("leasekeeper.waited_seconds", 60),
			}
			if span.took != time.Minute || !slices.Equal(span.s, want) {
				t.Errorf("took %v, has %v", span.took, span.s)
			}
		}
		w.failed(run, false)
		w.happened(run)
		if n := w.tracing.Watched(); n != 0 {
			t.Errorf("%d leases are watched", n)
		}
	})
}

func TestDoubtRecoveryAndLossAreEventsOfRun(t *testing.T) {
	bubble(t, func(w *world) {
		k, client := w.traced("a")
		began := time.Now()
		err := w.tracing.Run(w.Context(), k, "x", func(ctx context.Context, l *leasekeeper.Lease) error {
			remove := stalled(client)
			time.Sleep(relied * 3 / 4)
			remove()
			time.Sleep(ttl / 3)
			stalled(client)
			<-ctx.Done()
			time.Sleep(time.Second) // to stop takes time
			return nil
		})
		run := w.one("leasekeeper.run")
		w.happened(run, "lease in doubt", "lease renewed again", "lease in doubt", "lease lost")
		w.failed(run, true)
		if !errors.Is(err, leasekeeper.ErrLost) {
			t.Error(err)
		}
		if doubt := run.Events[0]; doubt.Time.Sub(began) < relied/2-time.Second || doubt.Time.Sub(began) > relied/2+time.Second || len(doubt.Attributes) == 0 {
			t.Errorf("%+v after %v", doubt, doubt.Time.Sub(began))
		}
		lost := run.Events[3]
		if early := run.EndTime.Sub(lost.Time); early < time.Second || early > time.Second+ttl {
			t.Errorf("the loss is %v before the end", early)
		}
		if reason := lost.Attributes[0].Value.AsString(); !strings.Contains(reason, "no renewal was acknowledged before the deadline") {
			t.Error(reason)
		}
	})
}

func TestEarlyEndIsOneEvent(t *testing.T) {
	for _, hook := range []bool{true, false} {
		bubble(t, func(w *world) {
			k, _ := w.keeper("a")
			if hook {
				k, _ = w.traced("a")
			}
			err := w.tracing.Run(w.Context(), k, "x", untilLost, leasekeeper.HoldAtMost(time.Minute))
			run := w.one("leasekeeper.run")
			w.happened(run, "tenure ends early")
			w.failed(run, true)
			if !errors.Is(err, leasekeeper.ErrLost) {
				t.Error(err)
			}
		})
	}
}

// The end of the caller's context, or of another lease that the caller holds, is no early end of this tenure.
func TestEndOfCallerIsNoEvent(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.traced("a")
		outer, err := k.Acquire(w.Context(), "outer", leasekeeper.HoldAtMost(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.tracing.Run(outer.Context(), k, "x", untilLost); err != nil {
			t.Error(err)
		}
		run := w.one("leasekeeper.run")
		w.happened(run)
		w.failed(run, false)
		if took := run.EndTime.Sub(run.StartTime); took != time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// The hook is stuck, or there is none: the loss is an event of Run all the same, once.
func TestLossIsEventWithoutHook(t *testing.T) {
	goOn := make(chan struct{})
	for name, o := range map[string]func(w *world) []leasekeeper.KeeperOption{
		"none": func(*world) []leasekeeper.KeeperOption { return nil },
		"stuck": func(w *world) []leasekeeper.KeeperOption {
			goOn = make(chan struct{})
			return []leasekeeper.KeeperOption{leasekeeper.WithHook(func(r leasekeeper.Report) { <-goOn; w.tracing.Hook(r) })}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, client := w.keeper("a", o(w)...)
				stalled(client)
				err := w.tracing.Run(w.Context(), k, "x", untilLost)
				if name == "stuck" {
					close(goOn)
				}
				if !errors.Is(err, leasekeeper.ErrLost) {
					t.Error(err)
				}
				w.happened(w.one("leasekeeper.run"), "lease lost")
			})
		})
	}
}

func TestAcquireHasSpanAndEventsGoToCaller(t *testing.T) {
	bubble(t, func(w *world) {
		k, client := w.traced("a")
		ctx, program := w.span()
		l, err := w.tracing.Acquire(ctx, k, "x")
		if err != nil {
			t.Fatal(err)
		}
		acquire := w.one("leasekeeper.acquire")
		w.has(acquire, attribute.String("leasekeeper.name", "x"))
		w.has(acquire, attribute.Int64("leasekeeper.token", int64(l.Token())))
		w.has(acquire, attribute.Float64("leasekeeper.waited_seconds", 0))
		w.failed(acquire, false)
		if acquire.Parent.SpanID() != program.SpanContext().SpanID() || trace.SpanFromContext(l.Context()) != program {
			t.Errorf("%+v, and the lease's context carries %v", acquire, trace.SpanFromContext(l.Context()))
		}
		released, err := w.tracing.Acquire(ctx, k, "y")
		if err != nil {
			t.Fatal(err)
		}
		if err := released.Release(ctx); err != nil {
			t.Error(err)
		}
		stalled(client)
		<-l.Context().Done()
		synctest.Wait()
		program.End()
		w.happened(w.one("program"), "lease in doubt", "lease lost")
		if n := w.tracing.Watched(); n != 0 {
			t.Errorf("%d leases are watched", n)
		}
	})
}

func TestRefusalAndFailureDiffer(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.traced("a")
		other, _ := w.keeper("b")
		if _, err := other.Acquire(w.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		never := func(context.Context, *leasekeeper.Lease) error { t.Error("the function ran"); return nil }
		noWait := leasekeeper.NoWait()
		_, acquired := w.tracing.Acquire(w.Context(), k, "x", noWait)
		ran := w.tracing.Run(w.Context(), k, "x", never, noWait)
		if !errors.Is(acquired, leasekeeper.ErrHeld) || !errors.Is(ran, leasekeeper.ErrHeld) {
			t.Errorf("%v, %v", acquired, ran)
		}
		for _, span := range append(w.ended("leasekeeper.acquire"), w.one("leasekeeper.run")) {
			w.has(span, attribute.String("leasekeeper.holder", "b"))
			w.failed(span, false)
		}
		w.exporter.Reset()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, acquired = w.tracing.Acquire(ctx, k, "x")
		ran = w.tracing.Run(ctx, k, "x", never)
		if !errors.Is(acquired, context.DeadlineExceeded) || !errors.Is(ran, context.DeadlineExceeded) {
			t.Errorf("%v, %v", acquired, ran)
		}
		spans := append(w.ended("leasekeeper.acquire"), w.one("leasekeeper.run"))
		if len(spans) != 3 {
			t.Errorf("%d spans", len(spans))
		}
		for _, span := range spans {
			w.failed(span, true)
		}
	})
}

// What the function returns is the outcome of the run, and not of the wait before it.
func TestErrorOfFunctionIsErrorOfRun(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.traced("a")
		for _, want := range []error{errFunc, &leasekeeper.HeldError{Name: "x"}} {
			w.exporter.Reset()
			if err := w.tracing.Run(w.Context(), k, "x", func(context.Context, *leasekeeper.Lease) error { return want }); err != want {
				t.Errorf("%v, want %v", err, want)
			}
			w.failed(w.one("leasekeeper.run"), true)
			w.failed(w.one("leasekeeper.acquire"), false)
		}
	})
}

func TestPanicEndsSpanAndGoesOn(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.traced("a")
		func() {
			defer func() {
				if r := recover(); r != errFunc {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = w.tracing.Run(w.Context(), k, "x", func(context.Context, *leasekeeper.Lease) error { panic(errFunc) })
		}()
		run := w.one("leasekeeper.run")
		if len(run.Events) != 1 || run.Events[0].Name != "exception" {
			t.Errorf("the events are %+v", run.Events)
		}
		if _, err := k.TryAcquire(w.Context(), "x"); err != nil {
			t.Error(err)
		}
	})
}

func TestEachTenureOfCampaignHasSpan(t *testing.T) {
	bubble(t, func(w *world) {
		k, client := w.traced("a")
		ctx, resign := context.WithCancel(w.Context())
		tenures := 0
		err := k.Campaign(ctx, "x", w.tracing.Func(func(ctx context.Context, _ *leasekeeper.Lease) error {
			tenures++
			if tenures == 1 {
				remove := stalled(client)
				defer remove()
				<-ctx.Done()
				return errFunc
			}
			_, work := w.sdk.Tracer("test").Start(ctx, "work")
			work.End()
			resign()
			return nil
		}))
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		spans := w.ended("leasekeeper.tenure")
		if len(spans) != 2 {
			t.Fatalf("%d tenures", len(spans))
		}
		w.happened(spans[0], "lease in doubt", "lease lost")
		w.failed(spans[0], true)
		w.happened(spans[1])
		w.failed(spans[1], false)
		w.has(spans[1], attribute.String("leasekeeper.name", "x"))
		if work := w.one("work"); work.Parent.SpanID() != spans[1].SpanContext.SpanID() {
			t.Error("the work is no child of its tenure")
		}
		if spans[1].Status.Code == codes.Error || spans[0].Attributes[1] == spans[1].Attributes[1] {
			t.Errorf("the tenures are %+v", spans)
		}
	})
}

// No report says that these leases have ended, because their keeper has no hook.
func TestLeasesWithoutReportsAreForgotten(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		ctx, program := w.span()
		defer program.End()
		for range 1000 {
			l, err := w.tracing.Acquire(ctx, k, "x")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.tracing.Watched(); n > 64 {
			t.Errorf("%d leases are watched", n)
		}
	})
}

// Without a span of the caller there is nothing that could take the events.
func TestNoSpanOfCallerIsNoWatch(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.traced("a")
		if _, err := w.tracing.Acquire(w.Context(), k, "x"); err != nil {
			t.Fatal(err)
		}
		if n := w.tracing.Watched(); n != 0 {
			t.Errorf("%d leases are watched", n)
		}
	})
}

// Many goroutines run under one tracer while the keeper reports.
func TestTracerIsSafeForConcurrentUse(t *testing.T) {
	recorded := new(counter)
	tracing := otellease.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorded)))
	k, err := leasekeeper.New(memory.New().Backend(), leasekeeper.WithHook(tracing.Hook))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for range 50 {
				if err := tracing.Run(t.Context(), k, "x", func(context.Context, *leasekeeper.Lease) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	if n := recorded.count(); n != 800 {
		t.Errorf("%d spans", n)
	}
}

// counter counts spans that have ended.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (c *counter) Shutdown(context.Context) error                  { return nil }
func (c *counter) ForceFlush(context.Context) error                { return nil }

func (c *counter) OnEnd(sdktrace.ReadOnlySpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
