package clientgolease_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// The numbers of docs/contrib-client-go.md are from the tests of this file.

// counter counts the requests of one keeper.
type counter struct {
	*memory.Backend
	mu    sync.Mutex
	calls map[string]int
}

func (c *counter) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[what]++
}

func (c *counter) Get(ctx context.Context, name string) (backend.Info, error) {
	c.count("get")
	return c.Backend.Get(ctx, name)
}

func (c *counter) Claim(ctx context.Context, claim backend.Claim) (backend.Lease, backend.Grant, error) {
	c.count("claim")
	return c.Backend.Claim(ctx, claim)
}

func (c *counter) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	c.count("renew")
	return c.Backend.Renew(ctx, leases, report)
}

// during returns the requests that a keeper sends while d passes.
func (c *counter) during(d time.Duration) map[string]int {
	c.mu.Lock()
	c.calls = map[string]int{}
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

func (w *world) counted(id string) (*candidate, *counter) {
	w.Helper()
	c := &counter{Backend: w.store.Backend(), calls: map[string]int{}}
	one := w.candidateOn(w.keeper(c), id, options(id))
	one.client = c.Backend
	return one, c
}

// A leader's elector sends nothing: the keeper's renewals are all. A candidate reads the name once in a RetryPeriod, and
// renews its place in the queue.
func TestWhatAnElectionCostsTheStore(t *testing.T) {
	bubble(t, func(w *world) {
		a, leader := w.counted("a")
		b, candidate := w.counted("b")
		a.start()
		queued()
		b.start()
		queued()
		const hour = time.Hour
		var leads map[string]int
		done := make(chan struct{})
		go func() { defer close(done); leads = leader.during(hour) }()
		waits := candidate.during(hour)
		<-done
		w.Logf("requests in an hour: of the leader %v, of a candidate %v", leads, waits)
		if leads["get"] != 0 || leads["claim"] != 0 || leads["renew"] > int(hour/(lease/4)) {
			w.Errorf("the leader sent %v", leads)
		}
		if waits["get"] > int(hour/retry)+1 || waits["claim"] != 0 || waits["renew"] > int(hour/(lease/4)) {
			w.Errorf("a candidate sent %v", waits)
		}
	})
}

// leases is a Kubernetes API with one Lease object.
type leases struct {
	coordination.LeaseInterface // nil: no elector needs the rest
	mu                          sync.Mutex
	one                         *coordinationv1.Lease
	version                     int64
}

func (l *leases) Leases(string) coordination.LeaseInterface { return l }

func (l *leases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.one == nil {
		return nil, errors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
	}
	return l.one.DeepCopy(), nil
}

func (l *leases) Create(_ context.Context, one *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.one != nil {
		return nil, errors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, name)
	}
	return l.put(one), nil
}

func (l *leases) Update(_ context.Context, one *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.Generation != l.version {
		return nil, errors.NewConflict(schema.GroupResource{Resource: "leases"}, name, nil)
	}
	return l.put(one), nil
}

func (l *leases) put(one *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	l.one = one.DeepCopy()
	l.one.Generation = l.version
	return l.one.DeepCopy()
}

// spread collects durations.
type spread struct {
	least, most, sum time.Duration
	n                int
}

func (s *spread) add(d time.Duration) {
	if s.n == 0 || d < s.least {
		s.least = d
	}
	s.most, s.sum, s.n = max(s.most, d), s.sum+d, s.n+1
}

// handOvers measures how long the name is without a leader after the leader stopped, or died, with one candidate that
// waits. begin starts an elector; die makes the leader unable to reach the store.
func handOvers(begin func(id string, led chan<- time.Time) (stop, die func(), over <-chan struct{}), dies bool) spread {
	const rounds = 40
	var s spread
	led := make(chan time.Time)
	stop, die, over := begin("0", led)
	<-led
	for i := range rounds {
		nextStop, nextDie, nextOver := begin(string(rune('a'+i)), led)
		time.Sleep(time.Minute + time.Duration(i)*173*time.Millisecond) // at another point of the rhythm each time
		gone := time.Now()
		if dies {
			die()
		} else {
			stop()
		}
		s.add((<-led).Sub(gone))
		stop()
		<-over
		stop, die, over = nextStop, nextDie, nextOver
	}
	stop()
	<-over
	return s
}

// leaseLock measures client-go's own lock.
func leaseLock(dies bool) spread {
	api := &leases{}
	return handOvers(func(id string, led chan<- time.Time) (func(), func(), <-chan struct{}) {
		ctx, stop := context.WithCancel(context.Background())
		mine := &cut{LeasesGetter: api}
		over := make(chan struct{})
		go func() {
			defer close(over)
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Client: mine, LockConfig: resourcelock.ResourceLockConfig{Identity: id},
				},
				LeaseDuration: lease, RenewDeadline: 10 * time.Second, RetryPeriod: retry, ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(ctx context.Context) { led <- time.Now(); <-ctx.Done() },
					OnStoppedLeading: func() {},
				},
			})
		}()
		return stop, mine.cut, over
	}, dies)
}

// cut is a connection to the API that a test can cut.
type cut struct {
	coordination.LeasesGetter
	mu  sync.Mutex
	off bool
}

func (c *cut) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
}

func (c *cut) Leases(namespace string) coordination.LeaseInterface {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return unreachable{}
	}
	return c.LeasesGetter.Leases(namespace)
}

// unreachable is an API that does not answer.
type unreachable struct{ coordination.LeaseInterface }

func (unreachable) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (unreachable) Update(ctx context.Context, _ *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// ours measures a Lock.
func (w *world) ours(dies bool) spread {
	return handOvers(func(id string, led chan<- time.Time) (func(), func(), <-chan struct{}) {
		c := w.candidate(id)
		c.work = func(ctx context.Context) { led <- time.Now(); <-ctx.Done() }
		c.start()
		return c.stop, func() { c.client.Inject(memory.Fault{Kind: memory.Stall}) }, c.over
	}, dies)
}

func TestHandOverDoesNotWaitForPolls(t *testing.T) {
	bubble(t, func(w *world) {
		own, theirs := w.ours(false), leaseLock(false)
		synctest.Wait()
		w.Logf("after a release: Lock %v to %v, mean %v; LeaseLock %v to %v, mean %v", own.least, own.most, own.sum/time.Duration(own.n),
			theirs.least, theirs.most, theirs.sum/time.Duration(theirs.n))
		if own.most > instant {
			w.Errorf("the hand-over took %v", own.most)
		}
		if theirs.most < retry {
			w.Errorf("the lock that polls took %v: this measures nothing", theirs.most)
		}
	})
}

func TestDeadLeaderIsReplacedNoLaterThanByObservation(t *testing.T) {
	bubble(t, func(w *world) {
		own, theirs := w.ours(true), leaseLock(true)
		synctest.Wait()
		w.Logf("after a death: Lock %v to %v, mean %v; LeaseLock %v to %v, mean %v", own.least, own.most, own.sum/time.Duration(own.n),
			theirs.least, theirs.most, theirs.sum/time.Duration(theirs.n))
		if own.most > lease {
			w.Errorf("the hand-over took %v", own.most)
		}
		if theirs.most < lease {
			w.Errorf("the lock that observes took %v: this measures nothing", theirs.most)
		}
	})
}
