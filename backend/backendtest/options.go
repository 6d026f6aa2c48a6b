package backendtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// keeperOptionTests are about what a keeper says of its leases, and how it ends a tenure early.
var keeperOptionTests = []test{
	{name: "HoldAtMostReleasesTheName", run: testHoldAtMost},
	{name: "FailedHealthCheckReleasesTheName", run: testHealth},
	{name: "DoubtBeginsAndEnds", ends: true, run: testDoubt},
	{name: "ObserveGoesOnAfterAnOutage", what: backend.Watch, run: testObserveOutage},
}

// reports collects the reports of a keeper.
type reports struct {
	mu  sync.Mutex
	all []leasekeeper.Report
}

func (r *reports) hook() leasekeeper.KeeperOption {
	return leasekeeper.WithHook(func(report leasekeeper.Report) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, report)
	})
}

// kinds returns the names of the types of all reports but renewals, whose number depends on the time.
func (r *reports) kinds() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	for _, report := range r.all {
		if _, renewal := report.(leasekeeper.Renewed); !renewal {
			text += " " + reflect.TypeOf(report).Name()
		}
	}
	return text
}

// reported waits until the hook has received these reports, and no others but renewals.
func (s *suite) reported(r *reports, want string) {
	s.Helper()
	for end := time.Now().Add(s.longest() + 10*time.Second); r.kinds() != want; time.Sleep(s.short / 50) {
		if time.Now().After(end) {
			s.Fatalf("the hook received%s, want%s", r.kinds(), want)
		}
	}
}

// endsEarly runs a function with an option that ends its tenure early, and fails unless the name is free after that,
// although the lease would last for longer.
func (s *suite) endsEarly(why leasekeeper.Option) {
	s.Helper()
	var got reports
	a, b, name := s.keeperOn(s.store.Open(s), "a", got.hook()), s.keeper("b"), s.name("x")
	var lease *leasekeeper.Lease
	err := a.Run(s.Context(), name, func(ctx context.Context, l *leasekeeper.Lease) error {
		lease = l
		<-ctx.Done()
		if i, err := b.Get(context.WithoutCancel(ctx), name); err != nil || !i.Held || i.Token != l.Token() {
			s.Errorf("the name is released under its function: %+v, %v", i, err)
		}
		return nil
	}, why)
	if s.is("Run", err, backend.ErrLost); lease == nil {
		s.Fatal("the function did not run")
	}
	s.gone(lease)
	next := s.must(b.TryAcquire(s.Context(), name))
	if next.Token() <= lease.Token() {
		s.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	s.reported(&got, " Held Waited EndedEarly Released")
}

func testHoldAtMost(s *suite) { s.endsEarly(leasekeeper.HoldAtMost(s.short / 10)) }

func testHealth(s *suite) {
	s.endsEarly(leasekeeper.WithHealth(func(context.Context) error { return errors.New("the disk is full") }))
}

// outage is a client whose renewals, reads and watches fail while its store is away. Everything else works. Watches that
// run when the outage begins go on until the first read has failed.
type outage struct {
	backend.Backend
	watching chan struct{} // closed when a watch has reported something
	began    sync.Once     // closes watching

	mu   sync.Mutex
	away bool
	cut  chan struct{} // closed when a read has failed in this outage
}

// outageClocked is such a client of a backend with clocks of its own.
type outageClocked struct {
	*outage
	backend.Clocked
}

func (s *suite) outage() (*outage, backend.Backend) {
	c := &outage{Backend: s.store.Open(s), watching: make(chan struct{}), cut: make(chan struct{})}
	if clocked, ok := c.Backend.(backend.Clocked); ok {
		return c, outageClocked{c, clocked}
	}
	return c, c
}

func (c *outage) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = true
}

func (c *outage) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away, c.cut = false, make(chan struct{})
}

// errAway is the error of a store that is away.
var errAway = fmt.Errorf("%w: the store is away", backend.ErrUnavailable)

// check returns an error while the store is away, and the channel that is closed when a read has failed in this outage or
// the next.
func (c *outage) check() (chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return c.cut, errAway
	}
	return c.cut, nil
}

func (c *outage) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	if _, err := c.check(); err != nil {
		return err
	}
	return c.Backend.Renew(ctx, leases, report)
}

func (c *outage) Get(ctx context.Context, name string) (backend.Info, error) {
	c.mu.Lock()
	if c.away {
		defer c.mu.Unlock()
		select {
		case <-c.cut:
		default:
			close(c.cut)
		}
		return backend.Info{}, errAway
	}
	c.mu.Unlock()
	return c.Backend.Get(ctx, name)
}

// Watch implements [backend.Watcher], which the backend has where a test uses it.
func (c *outage) Watch(ctx context.Context, prefix string, report func(backend.Event)) error {
	cut, err := c.check()
	if err != nil {
		return err
	}
	watcher, err := backend.Can[backend.Watcher](c.Backend)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan bool)
	go func() {
		select {
		case <-cut:
			cancel()
			ended <- true
		case <-ctx.Done():
			ended <- false
		}
	}()
	err = watcher.Watch(ctx, prefix, func(e backend.Event) {
		report(e)
		c.began.Do(func() { close(c.watching) })
	})
	cancel()
	if <-ended {
		return errAway
	}
	return err
}

// A store that is away for more than half of a lease puts it in doubt. When the store is back in time, nothing was lost.
func testDoubt(s *suite) {
	s.ttl = max(3*s.ttl, 10*time.Second) // a busy machine has half of it to renew the lease
	var got reports
	store, b := s.outage()
	k := s.keeperOn(b, "a", got.hook())
	l := s.must(k.Acquire(s.Context(), s.name("x")))
	doubt := l.InDoubt()
	store.begin()
	if in, open := <-doubt; !in || !open {
		s.Errorf("the store is away, and the lease is in doubt: %v, %v", in, open)
	}
	if err := l.Check(); err != nil {
		s.Errorf("a lease in doubt is valid: %v", err)
	}
	store.end()
	if in, open := <-doubt; in || !open {
		s.Errorf("the store is back, and the lease is in doubt: %v, %v", in, open)
	}
	if err := l.Check(); err != nil {
		s.Error(err)
	}
	if err := l.Release(s.Context()); err != nil {
		s.Error(err)
	}
	if in, open := <-doubt; in || open {
		s.Errorf("the lease is released, and in doubt: %v, %v", in, open)
	}
	s.reported(&got, " Held Waited Doubted Assured Released")
}

// An observer whose store is away for a while sees the newest state when the store is back, and then each change.
func testObserveOutage(s *suite) {
	name, holder := s.name("x"), s.keeper("holder")
	store, b := s.outage()
	observer := s.keeperOn(b, "observer")
	ctx, cancel := context.WithTimeout(s.Context(), s.longest()+30*time.Second)
	defer cancel()
	release := func(l *leasekeeper.Lease) {
		s.Helper()
		if err := l.Release(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
	l, next := s.must(holder.TryAcquire(s.Context(), name)), make(chan *leasekeeper.Lease, 1)
	step := 0
	for i, err := range observer.Observe(ctx, name) {
		if err != nil {
			s.Fatalf("after step %d, the observation ends: %v", step, err)
		}
		switch {
		case step == 0 && i.Held && i.Token == l.Token():
			<-store.watching // so that the observer hears of the release
			cut, _ := store.check()
			store.begin()
			release(l)
			go func() { // the loop goes on, and its next read fails
				defer store.end()
				select {
				case <-cut:
				case <-ctx.Done():
				}
				l, err := holder.TryAcquire(s.Context(), name)
				s.kind("TryAcquire", err)
				next <- l
			}()
			step = 1
		case step == 1 && i.Held && i.Token > l.Token():
			l = <-next
			release(l)
			step = 2
		case step == 2 && !i.Held:
			return
		default:
			s.Fatalf("after step %d, it yields %+v", step, i)
		}
	}
}
