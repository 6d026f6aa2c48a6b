package gocronlease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasekeeper/leasekeeper"
)

// ErrNotLeader means that this process does not lead, so that gocron does not run the job here.
var ErrNotLeader = errors.New("gocronlease: this process is not the leader")

// Elector makes gocron run all jobs in one process, the leader. Pass it to [gocron.WithDistributedElector] and run
// [Elector.Campaign]. It is safe for concurrent use.
type Elector struct {
	keeper  *leasekeeper.Keeper
	name    string
	options []leasekeeper.Option

	mu          sync.Mutex
	campaigning bool
	lease       *leasekeeper.Lease // nil while this process does not lead
	tasks       sync.WaitGroup     // functions that run; it grows only under mu, and only while lease is set
}

// NewElector returns an Elector for the name of an election. It leads only while Campaign runs. The options are those of
// its lease, such as [leasekeeper.WithTTL].
func NewElector(k *leasekeeper.Keeper, name string, o ...leasekeeper.Option) *Elector {
	return &Elector{keeper: k, name: name, options: o}
}

// Campaign takes part in the election until ctx ends: it waits for the name, leads, and waits again when the lease is
// lost. When ctx ends or the keeper is closed, the contexts of the functions of [Elector.Task] end, and Campaign keeps
// the name until all of them have returned. It returns the error of ctx, or the error for which no campaign is possible.
// Only one Campaign of an Elector runs at a time.
func (e *Elector) Campaign(ctx context.Context) error {
	if !e.begin() {
		return fmt.Errorf("%w: a campaign of this Elector runs already", leasekeeper.ErrInvalid)
	}
	defer e.end()
	return e.keeper.Campaign(ctx, e.name, e.lead, e.options...)
}

// begin returns false if a campaign runs.
func (e *Elector) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.campaigning {
		return false
	}
	e.campaigning = true
	return true
}

func (e *Elector) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.campaigning = false
}

// lead keeps the name until ctx has ended and no function runs under the lease.
func (e *Elector) lead(ctx context.Context, lease *leasekeeper.Lease) error {
	e.set(lease)
	<-ctx.Done()
	e.set(nil)
	e.tasks.Wait()
	return nil
}

func (e *Elector) set(lease *leasekeeper.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lease = lease
}

// IsLeader returns nil if this process leads at this moment, by the machine's clocks, and else [ErrNotLeader]. gocron
// calls it before each run of a job. It asks no store and does not wait, so a process that has just started does not lead
// yet.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leads()
}

// leads is IsLeader for a caller that holds the lock.
func (e *Elector) leads() error {
	if e.lease == nil {
		return ErrNotLeader
	}
	if err := e.lease.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return nil
}

// Task returns a task that runs fn under the leader's lease. It returns [ErrNotLeader] without calling fn if the process
// no longer leads. The context of fn ends when the lease is lost, when Campaign ends, when the scheduler shuts down, or
// when the keeper is closed; it has the values of gocron's context. The task's error is that of fn, joined with the loss
// if the lease was lost.
//
// Without Task, gocron asks [Elector.IsLeader] before a run, and nothing ends the run when the lease is lost.
func (e *Elector) Task(fn leasekeeper.Func) gocron.Task {
	return gocron.NewTask(electedTask{e, fn}.run)
}

// electedTask is a function that runs under an Elector.
type electedTask struct {
	elector *Elector
	fn      leasekeeper.Func
}

func (t electedTask) run(ctx context.Context) error {
	lease, err := t.elector.enter()
	if err != nil {
		return err
	}
	defer t.elector.tasks.Done()
	// The loss of the lease ends the context without another goroutine in between. The scheduler's end may come later.
	both, cancel := context.WithCancelCause(lease.Context())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	return runUnder(jobContext{both, ctx}, lease, t.fn)
}

// enter counts a function that begins. The caller calls tasks.Done when it has returned.
func (e *Elector) enter() (*leasekeeper.Lease, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.leads(); err != nil {
		return nil, err
	}
	e.tasks.Add(1)
	return e.lease, nil
}

// jobContext ends with its Context and has the values of the job's context too.
type jobContext struct {
	context.Context
	job context.Context
}

func (c jobContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.job.Value(key)
}
