package controllerlease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper"
	clientgolease "github.com/leasekeeper/leasekeeper/contrib/client-go"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// defaultGrace is how long a manager waits for its runnables if GracefulShutdownTimeout is not set.
const defaultGrace = 30 * time.Second

// Election is one manager's place in an election.
type Election struct {
	lock    *clientgolease.Lock
	options manager.Options
	grace   time.Duration // negative: the manager waits for its runnables without a limit
}

// New returns the place of one manager in the election under a name. Of the options it uses LeaseDuration, which is the
// TTL of the lease, RetryPeriod, and GracefulShutdownTimeout, which must not be zero.
func New(k *leasekeeper.Keeper, name string, o manager.Options) (*Election, error) {
	grace := defaultGrace
	if o.GracefulShutdownTimeout != nil {
		grace = *o.GracefulShutdownTimeout
	}
	if grace == 0 {
		return nil, fmt.Errorf("%w: a GracefulShutdownTimeout of 0: the manager would return while its runnables run", leasekeeper.ErrInvalid)
	}
	var timing clientgolease.Options
	if o.LeaseDuration != nil {
		timing.LeaseDuration = *o.LeaseDuration
	}
	if o.RetryPeriod != nil {
		timing.RetryPeriod = *o.RetryPeriod
	}
	lock, err := clientgolease.New(k, name, timing)
	if err != nil {
		return nil, err
	}
	return &Election{lock: lock, options: o, grace: grace}, nil
}

// Options returns the options for the manager: those that New was given, with leader election under the lease. It
// replaces RenewDeadline and LeaderElectionReleaseOnCancel.
func (e *Election) Options() manager.Options {
	o := e.options
	timing := e.lock.Timing()
	o.LeaderElection = true
	o.LeaderElectionResourceLockInterface = e.lock
	o.LeaderElectionReleaseOnCancel = false // Start releases
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &timing.LeaseDuration, &timing.RenewDeadline, &timing.RetryPeriod
	return o
}

// Start starts a manager that was made with Options, and blocks until it has stopped. It stops when ctx ends or when the
// lease is lost.
func (e *Election) Start(ctx context.Context, m manager.Manager) error {
	return e.lock.Run(ctx, func(ctx context.Context) error {
		ends := make(chan time.Time, 1)
		stop := context.AfterFunc(ctx, func() { ends <- time.Now() })
		defer stop()
		err := m.Start(ctx)
		// After the loss of a lease the manager returns no error for a runnable that still runs.
		late := errors.Is(err, context.DeadlineExceeded)
		select {
		case ended := <-ends:
			late = late || e.grace > 0 && time.Since(ended) >= e.grace
		default:
		}
		if late {
			return errors.Join(err, clientgolease.ErrStillRunning)
		}
		return err
	})
}

// Lease returns the lease of this manager while it leads, for its token, and nil otherwise.
func (e *Election) Lease() *leasekeeper.Lease { return e.lock.Lease() }
