package gocronlease

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/internal/splay"
)

// ErrNoLease means that gocron has run a function of [Locker.Task] without a lock: the job is not under this Locker. The
// function was not called.
var ErrNoLease = errors.New("gocronlease: the job runs without a lease: pass the Locker to gocron.WithDistributedLocker or gocron.WithDistributedJobLocker")

// Locker makes gocron run each job in one process at a time. Pass it to [gocron.WithDistributedLocker] or, for single
// jobs, to [gocron.WithDistributedJobLocker]. It is safe for concurrent use and needs no closing: closing its keeper
// waits for the runs that are left.
type Locker struct {
	keeper *leasekeeper.Keeper
	prefix string
	splay  time.Duration
	lease  []leasekeeper.Option

	mu   sync.Mutex
	runs map[string]*run // by name: runs between the call of Lock and that of Unlock
}

// Option changes a [Locker].
type Option func(*Locker)

// WithPrefix puts a text before the names of jobs, such as "billing/jobs/". Programs with different prefixes do not
// exclude each other.
func WithPrefix(prefix string) Option { return func(l *Locker) { l.prefix = prefix } }

// WithSplay keeps the name of a job taken until d after the run began, even if the job ends sooner. A scheduler whose
// clock is late by less than d then finds the name taken, and does not run the job a second time. Choose d above the
// difference between the clocks of your machines, and below half of the shortest interval between runs, because this
// process cannot run the job again either. The default is 0. Closing the keeper waits for the rest of d.
func WithSplay(d time.Duration) Option { return func(l *Locker) { l.splay = d } }

// WithLease sets options of the leases, such as [leasekeeper.WithTTL].
func WithLease(o ...leasekeeper.Option) Option {
	return func(l *Locker) { l.lease = append(l.lease, o...) }
}

// NewLocker returns a Locker that holds its leases with a keeper. The caller closes the keeper after it has shut down the
// scheduler.
func NewLocker(k *leasekeeper.Keeper, o ...Option) *Locker {
	l := &Locker{keeper: k, runs: make(map[string]*run)}
	for _, option := range o {
		option(l)
	}
	l.lease = append(l.lease, leasekeeper.NoWait())
	return l
}

// run is one run of a job. The Locker's lock guards lease.
type run struct {
	locker *Locker
	name   string
	ctx    context.Context // gocron's context of the job
	lease  *leasekeeper.Lease
	began  time.Time     // when the name was acquired
	held   chan struct{} // closed when lease and began are set
	unlock func()        // closes over
	over   chan struct{} // closed when the job has returned
	done   chan struct{} // closed when err is set
	err    error         // what Keeper.Run returned
}

// Lock claims the name of a job for one run. gocron calls it. It does not wait: if another process holds the name, the
// error is a [*leasekeeper.HeldError]. gocron does not run the job if there is an error, and reports the error to the
// job's listener [gocron.AfterLockError] only.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	if key == unnamed {
		return nil, fmt.Errorf("%w: a job of Locker.Task has no name of its own: give it one with gocron.WithName", leasekeeper.ErrInvalid)
	}
	r := &run{
		locker: l, name: l.prefix + key, ctx: ctx,
		held: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{}),
	}
	r.unlock = sync.OnceFunc(func() { close(r.over) })
	if err := l.add(r); err != nil {
		return nil, err
	}
	go func() {
		defer close(r.done)
		r.err = l.keeper.Run(ctx, r.name, r.hold, l.lease...)
	}()
	select {
	case <-r.held:
		return r, nil
	case <-r.done:
		l.remove(r)
		return nil, r.err
	}
}

// add registers a run. It fails while an earlier run of the name has not returned in this process, even if the earlier
// run has lost its lease.
func (l *Locker) add(r *run) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	earlier := l.runs[r.name]
	if earlier == nil {
		l.runs[r.name] = r
		return nil
	}
	held := &leasekeeper.HeldError{Name: r.name, Self: true}
	if earlier.lease != nil {
		held.Holder, held.Token = earlier.lease.Holder(), earlier.lease.Token()
	}
	return held
}

// remove forgets a run.
func (l *Locker) remove(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.name] == r {
		delete(l.runs, r.name)
	}
}

// hold keeps the name until the job has returned and the splay has passed. Keeper.Run calls it under the lease.
func (r *run) hold(_ context.Context, lease *leasekeeper.Lease) error {
	r.locker.mu.Lock()
	r.lease, r.began = lease, time.Now()
	r.locker.mu.Unlock()
	close(r.held)
	<-r.over
	splay.Rest(lease, r.locker.splay-time.Since(r.began))
	return nil
}

// Unlock says that the job has returned. gocron calls it. It releases the name and waits until the store has confirmed
// that. If the splay has not passed yet, it returns at once, and the name is released later. [leasekeeper.ErrLost] means
// that the lease was lost while the job ran. If ctx ends first, the error is [leasekeeper.ErrUnknownOutcome], and the
// keeper goes on.
func (r *run) Unlock(ctx context.Context) error {
	lost := r.lease.Check()
	r.locker.remove(r)
	rests := time.Since(r.began) < r.locker.splay
	r.unlock()
	if rests {
		return lost
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	select {
	case <-r.done:
		return r.err
	default:
		return fmt.Errorf("gocronlease: release of %s: %w: %w", r.name, leasekeeper.ErrUnknownOutcome, ctx.Err())
	}
}

// Lease returns the lease of the run that gocron has started with ctx, which is the context that gocron passed to the
// function of the job. It returns false if ctx is another context, even one made from it, or if the job runs without a
// lock. The function must stop when [leasekeeper.Lease.Context] ends. [Locker.Task] does the same for functions without
// further parameters.
func (l *Locker) Lease(ctx context.Context) (*leasekeeper.Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.runs {
		if r.lease != nil && r.ctx == ctx {
			return r.lease, true
		}
	}
	return nil, false
}

// Task returns a task that runs fn under the lease of each run. The context of fn ends when the lease is lost, when the
// scheduler shuts down, or when the keeper is closed. The task's error is that of fn, joined with the loss if the lease
// was lost. The job needs a name: pass [gocron.WithName] to NewJob, else Lock refuses it.
func (l *Locker) Task(fn leasekeeper.Func) gocron.Task { return gocron.NewTask(lockedTask{l, fn}.run) }

// lockedTask is a function that runs under a Locker.
type lockedTask struct {
	locker *Locker
	fn     leasekeeper.Func
}

// unnamed is the name that gocron gives to all jobs of Locker.Task that have no other. They would share one lease.
var unnamed = runtime.FuncForPC(reflect.ValueOf(lockedTask{}.run).Pointer()).Name()

func (t lockedTask) run(ctx context.Context) error {
	lease, ok := t.locker.Lease(ctx)
	if !ok {
		return ErrNoLease
	}
	return runUnder(lease.Context(), lease, t.fn)
}

// runUnder runs fn, and joins the loss of the lease to its error.
func runUnder(ctx context.Context, lease *leasekeeper.Lease, fn leasekeeper.Func) error {
	err := fn(ctx, lease)
	if lost := lease.Check(); lost != nil && !errors.Is(err, lost) {
		return errors.Join(lost, err)
	}
	return err
}
