package cronlease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/internal/splay"
)

// Option changes a [Job] or a [Wrapper].
type Option func(*runner)

// WithSplay keeps the name taken until d after the run began, even if the job ends sooner. A process whose clock is late
// by less than d then finds the name taken, and does not run the job a second time. Choose d above the difference between
// the clocks of your machines, and below half of the shortest interval between runs, because this process cannot run the
// job again either. The default is 0. To cron, the job runs until d has passed.
func WithSplay(d time.Duration) Option { return func(r *runner) { r.splay = d } }

// WithLogger reports to l what becomes of the runs: Info for a run that another process does or that ctx has stopped, Error
// for all others that failed. The default is [cron.DefaultLogger], which prints errors only.
func WithLogger(l cron.Logger) Option { return func(r *runner) { r.logger = l } }

// WithLease sets options of the leases, such as [leasekeeper.WithTTL].
func WithLease(o ...leasekeeper.Option) Option {
	return func(r *runner) { r.lease = append(r.lease, o...) }
}

// runner runs functions under one name.
type runner struct {
	ctx    context.Context
	keeper *leasekeeper.Keeper
	name   string
	splay  time.Duration
	logger cron.Logger
	lease  []leasekeeper.Option

	running atomic.Bool
}

func newRunner(ctx context.Context, k *leasekeeper.Keeper, name string, o []Option) *runner {
	r := &runner{ctx: ctx, keeper: k, name: name, logger: cron.DefaultLogger}
	for _, option := range o {
		option(r)
	}
	r.lease = append(r.lease, leasekeeper.NoWait())
	return r
}

// Job returns a job that runs fn under a lease on the name, unless another process or an earlier run holds the name. The
// context of fn ends when the lease is lost, when ctx ends, or when the keeper is closed. When ctx has ended, the job does
// nothing. It logs the error of fn, joined with the loss if the lease was lost.
func Job(ctx context.Context, k *leasekeeper.Keeper, name string, fn leasekeeper.Func, o ...Option) cron.Job {
	r := newRunner(ctx, k, name, o)
	return cron.FuncJob(func() { r.run(fn) })
}

// Wrapper returns a wrapper that runs jobs under a lease on the name, unless another process or an earlier run holds the
// name. When ctx has ended, the jobs do not run. A job that loses its lease runs on, because it has no context: the loss
// is logged when the job has returned. [Job] does better.
//
// All jobs that one Wrapper wraps exclude each other. So make one for each job, and do not pass it to [cron.WithChain].
func Wrapper(ctx context.Context, k *leasekeeper.Keeper, name string, o ...Option) cron.JobWrapper {
	r := newRunner(ctx, k, name, o)
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			r.run(func(context.Context, *leasekeeper.Lease) error {
				j.Run()
				return nil
			})
		})
	}
}

// errRunning is why a run is skipped whose predecessor runs yet, perhaps after it has lost its lease.
var errRunning = errors.New("an earlier run has not returned in this process")

// run runs fn once under the lease, and logs what became of that.
func (r *runner) run(fn leasekeeper.Func) {
	if !r.running.CompareAndSwap(false, true) {
		r.log(errRunning)
		return
	}
	defer r.running.Store(false)
	r.log(r.keeper.Run(r.ctx, r.name, func(ctx context.Context, lease *leasekeeper.Lease) error {
		began := time.Now()
		err := fn(ctx, lease)
		splay.Rest(lease, r.splay-time.Since(began))
		return err
	}, r.lease...))
}

// log reports the outcome of a run.
func (r *runner) log(err error) {
	held, isHeld := errors.AsType[*leasekeeper.HeldError](err)
	switch {
	case err == nil:
	case err == errRunning, isHeld && held.Name == r.name:
		r.logger.Info("skip", "name", r.name, "reason", err)
	case r.ctx.Err() != nil && errors.Is(err, r.ctx.Err()) && !errors.Is(err, leasekeeper.ErrLost):
		r.logger.Info("stopped", "name", r.name, "reason", err)
	default:
		r.logger.Error(err, "job under a lease", "name", r.name)
	}
}
