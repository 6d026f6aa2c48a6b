package leasekeeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
)

func TestWatchContinuesAfterTemporaryErrors(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		w.must(k.Acquire(w.Context(), "x/1"))
		ctx, cancel := context.WithTimeout(w.Context(), 10*ttl)
		defer cancel()
		time.AfterFunc(ttl, w.store.Restart)
		time.AfterFunc(2*ttl, w.store.Restart)
		var errs []error
		resyncs := 0
		for e, err := range k.Watch(ctx, "x/") {
			switch {
			case err != nil:
				errs = append(errs, err)
			case e.Kind == leasekeeper.Resync && e.Info.Held:
				resyncs++
			default:
				w.Errorf("%+v", e)
			}
		}
		if resyncs != 3 || len(errs) != 3 {
			w.Fatalf("%d present states, errors %v", resyncs, errs)
		}
		w.is(errs[0], leasekeeper.ErrUnavailable)
		w.is(errs[2], context.DeadlineExceeded)
		for range k.Watch(w.Context(), "x/") {
			break // the loop leaves no goroutine
		}
		func() {
			defer func() {
				if recover() != "out of the loop" {
					w.Error("the panic of a loop did not come out")
				}
			}()
			for range k.Watch(w.Context(), "x/") {
				panic("out of the loop")
			}
		}()
	})
}

func TestWatchEndsWithItsKeeper(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		got := make(chan error)
		go func() {
			var last error
			for _, err := range k.Watch(w.Context(), "") {
				last = err
			}
			got <- last
		}()
		time.Sleep(time.Second)
		if err := k.Shutdown(w.Context()); err != nil {
			w.Error(err)
		}
		w.is(<-got, leasekeeper.ErrClosed)
	})
}
