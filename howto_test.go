package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// This file holds the code of pages below docs/how-to. TestHowTosShowCodeThatCompiles checks that the pages show copies
// of it.

// nightly runs the backup of a night, unless a machine has made it. The schedule calls it with the planned time.
func nightly(ctx context.Context, k *leasekeeper.Keeper, planned time.Time, backUp leasekeeper.Func) error {
	err := k.Once(ctx, "jobs/nightly-backup", leasekeeper.TickAt(planned), backUp)
	if errors.Is(err, leasekeeper.ErrDone) {
		log.Printf("the backup of %s exists", planned.Format(time.DateOnly))
		return nil
	}
	return err
}

// newCandidate returns a candidate whose card is the address at which it serves.
func newCandidate(k *leasekeeper.Keeper, address string) (*leasekeeper.Elector, error) {
	return k.NewElector("leader", leasekeeper.WithCard(address))
}

// lead serves while this process is the leader, and otherwise waits in the queue.
func lead(ctx context.Context, e *leasekeeper.Elector, serve leasekeeper.Func) error {
	return e.Campaign(ctx, serve) // serve must return when its context ends
}

// handle answers a request if this process leads, and otherwise sends the client to the leader.
func handle(e *leasekeeper.Elector, answer func(http.ResponseWriter, *http.Request, *leasekeeper.Lease)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if l := e.Lease(); l != nil {
			answer(w, r, l)
			return
		}
		leader, err := e.Leader(r.Context())
		if err != nil || !leader.Held {
			http.Error(w, "there is no leader", http.StatusServiceUnavailable)
			return
		}
		http.Redirect(w, r, "http://"+leader.Holder.Card.Text+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}
}

// follow calls leader with the address of each new leader, and with "" when there is none, until ctx ends.
func follow(ctx context.Context, k *leasekeeper.Keeper, leader func(address string)) error {
	for info, err := range k.Observe(ctx, "leader") {
		switch {
		case err != nil:
			return err // ctx has ended, or the store refuses to read the name
		case info.Held:
			leader(info.Holder.Card.Text)
		default:
			leader("")
		}
	}
	return nil
}

// worker owns a fair share of the shards.
type worker struct {
	k      *leasekeeper.Keeper
	shards []string // such as "shards/0", "shards/1"
	serve  leasekeeper.Func
	own    map[string]*shard
}

// shard is a shard that this worker serves.
type shard struct {
	lease *leasekeeper.Lease
	stop  context.CancelFunc
	done  chan struct{} // closed when serve has returned
}

// run acquires and releases shards until ctx ends.
func (w *worker) run(ctx context.Context, id string) error {
	// Each worker holds a name of its own, so that the others can count it.
	me, err := w.k.Acquire(ctx, "workers/"+id)
	if err != nil {
		return err
	}
	defer me.Release(context.WithoutCancel(ctx))
	w.own = map[string]*shard{}
	defer w.keep(context.WithoutCancel(ctx), 0)
	for {
		if workers, err := w.count(ctx); err == nil && me.Check() == nil {
			share := (len(w.shards) + workers - 1) / workers
			w.keep(ctx, share)
			w.take(ctx, share)
		}
		select {
		case <-time.After(time.Second):
		case <-me.Context().Done():
			return context.Cause(me.Context()) // the worker lost its own name: start over
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// count returns how many workers there are.
func (w *worker) count(ctx context.Context) (workers int, err error) {
	for i, err := range w.k.List(ctx, "workers/") {
		if err != nil {
			return 0, err
		}
		if i.Held {
			workers++
		}
	}
	return max(workers, 1), nil
}

// take acquires free shards up to the fair share.
func (w *worker) take(ctx context.Context, share int) {
	for _, name := range w.shards {
		if len(w.own) >= share {
			return
		}
		l, err := w.k.TryAcquire(ctx, name)
		if err != nil {
			continue // another worker holds it, or the store does not answer: try again in the next round
		}
		serving, stop := context.WithCancel(l.Context())
		s := &shard{l, stop, make(chan struct{})}
		w.own[name] = s
		go func() {
			defer close(s.done)
			if err := w.serve(serving, l); err != nil {
				log.Printf("%v: %v", l, err)
			}
		}()
	}
}

// keep stops serving lost shards, and releases those above the fair share.
func (w *worker) keep(ctx context.Context, share int) {
	for name, s := range w.own {
		if s.lease.Check() == nil && len(w.own) <= share {
			continue
		}
		s.stop()
		<-s.done // only then may another worker begin
		_ = s.lease.Release(ctx)
		delete(w.own, name)
	}
}

func Example_cronJob() {
	k := open(memory.New())
	defer k.Close()
	planned := time.Date(2026, 3, 1, 3, 15, 0, 0, time.UTC)
	for range 2 {
		err := nightly(context.Background(), k, planned, func(ctx context.Context, l *leasekeeper.Lease) error {
			fmt.Println("backing up with token", l.Token())
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// backing up with token 1
	// <nil>
	// <nil>
}

func Example_leaderElection() {
	ctx, stop := context.WithCancel(context.Background())
	k := open(memory.New())
	defer k.Close()
	e, err := newCandidate(k, "10.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	go lead(ctx, e, func(ctx context.Context, l *leasekeeper.Lease) error {
		<-ctx.Done()
		return nil
	})
	err = follow(ctx, k, func(address string) {
		if address != "" {
			fmt.Println("the leader is at", address)
			stop()
		}
	})
	fmt.Println(err)
	// Output:
	// the leader is at 10.0.0.1:8080
	// context canceled
}

func Example_shardOwnership() {
	ctx, stop := context.WithCancel(context.Background())
	k := open(memory.New())
	defer k.Close()
	w := &worker{k: k, shards: []string{"shards/0", "shards/1"}, serve: func(ctx context.Context, l *leasekeeper.Lease) error {
		if l.Name() == "shards/1" {
			stop() // as at SIGTERM
		}
		<-ctx.Done()
		fmt.Println("gave up", l.Name())
		return nil
	}}
	fmt.Println(w.run(ctx, "one"))
	// Unordered output:
	// gave up shards/0
	// gave up shards/1
	// context canceled
}

func TestHowToCronJobWorksAsWritten(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		var runs atomic.Int32
		job := func(context.Context, *leasekeeper.Lease) error { runs.Add(1); return nil }
		planned := time.Date(2026, 3, 1, 3, 15, 0, 0, time.UTC)
		w.is(nightly(w.Context(), a, planned, job), nil)
		time.Sleep(10 * time.Second) // b's clock is late
		w.is(nightly(w.Context(), b, planned, job), nil)
		if runs.Load() != 1 {
			w.Errorf("%d backups", runs.Load())
		}
		planned = planned.AddDate(0, 0, 1)
		w.is(nightly(w.Context(), b, planned, func(context.Context, *leasekeeper.Lease) error { return errFunc }), errFunc)
		w.is(nightly(w.Context(), a, planned, job), nil)
		w.is(nightly(w.Context(), b, planned, job), nil)
		if runs.Load() != 2 {
			w.Errorf("%d backups after a day", runs.Load())
		}
	})
}

func TestHowToLeaderElectionWorksAsWritten(t *testing.T) {
	bubble(t, func(w *world) {
		a, client := w.keeper("a")
		b, _ := w.keeper("b")
		ofA, err := newCandidate(a, "a:1")
		w.is(err, nil)
		ofB, err := newCandidate(b, "b:1")
		w.is(err, nil)
		ask := func(e *leasekeeper.Elector) string {
			r := httptest.NewRecorder()
			handle(e, func(w http.ResponseWriter, _ *http.Request, l *leasekeeper.Lease) {
				fmt.Fprint(w, "by ", l.Holder().Card.Text)
			})(r, httptest.NewRequest(http.MethodGet, "/work?n=1", nil))
			if r.Code == http.StatusTemporaryRedirect {
				return r.Header().Get("Location")
			}
			return strings.TrimSpace(r.Body.String())
		}
		answers := func(e *leasekeeper.Elector, want string) {
			w.Helper()
			if got := ask(e); got != want {
				w.Errorf("a request is answered with %q, want %q", got, want)
			}
		}
		var seen []string
		ctx, cancel := context.WithCancel(w.Context())
		serve := func(ctx context.Context, l *leasekeeper.Lease) error { <-ctx.Done(); return nil }
		ended := make(chan struct{}, 3)
		answers(ofB, "there is no leader")
		go func() { _ = lead(ctx, ofA, serve); ended <- struct{}{} }()
		synctest.Wait()
		go func() { _ = lead(ctx, ofB, serve); ended <- struct{}{} }()
		go func() { _ = follow(ctx, b, func(address string) { seen = append(seen, address) }); ended <- struct{}{} }()
		time.Sleep(time.Minute)
		answers(ofA, "by a:1")
		answers(ofB, "http://a:1/work?n=1")
		client.Inject(memory.Fault{Kind: memory.Stall}) // a is cut off
		time.Sleep(time.Minute)
		answers(ofB, "by b:1")
		w.store.Restart()
		time.Sleep(time.Minute)
		cancel()
		for range 3 {
			<-ended
		}
		if len(seen) < 2 || seen[0] != "a:1" || seen[len(seen)-1] != "b:1" {
			w.Errorf("leaders %q", seen)
		}
	})
}

func TestHowToShardOwnershipWorksAsWritten(t *testing.T) {
	bubble(t, func(w *world) {
		shards := []string{"shards/0", "shards/1", "shards/2", "shards/3"}
		serve := func(ctx context.Context, l *leasekeeper.Lease) error { <-ctx.Done(); return nil }
		owners := func() map[string]int {
			all := map[string]int{}
			k, _ := w.keeper("observer")
			for i, err := range k.List(w.Context(), "shards/") {
				if err != nil {
					w.Fatal(err)
				}
				if i.Held {
					all[i.Holder.ID]++
				}
			}
			return all
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		var first *memory.Backend
		ended := make(chan struct{}, 2)
		for _, id := range []string{"a", "b"} {
			k, client := w.keeper(id)
			if id == "a" {
				first = client
			}
			go func() {
				for ctx.Err() == nil {
					_ = (&worker{k: k, shards: shards, serve: serve}).run(ctx, id)
				}
				ended <- struct{}{}
			}()
			time.Sleep(5 * time.Second)
		}
		if got := owners(); got["a"] != 2 || got["b"] != 2 {
			w.Errorf("two workers own %v", got)
		}
		heal := first.Inject(memory.Fault{Kind: memory.Refuse})
		time.Sleep(2 * ttl)
		if got := owners(); got["b"] != 4 {
			w.Errorf("when one worker is cut off they own %v", got)
		}
		heal()
		time.Sleep(ttl)
		if got := owners(); got["a"] != 2 || got["b"] != 2 {
			w.Errorf("when it is connected again they own %v", got)
		}
		cancel()
		<-ended
		<-ended
	})
}
