package clientgolease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var _ resourcelock.Interface = (*Lock)(nil)

// ErrUnguarded means that an elector uses a lock that does not see when the work of the leader ends.
var ErrUnguarded = errors.New("clientgolease: the lock does not see the leader's work: give the elector the LeaderElectionConfig " +
	"that Lock.Config returns, or run the elector within Lock.Run")

// errNotLeading means that the elector wants to renew a lease that it was never granted, or that is over.
var errNotLeading = fmt.Errorf("clientgolease: this candidate does not lead: %w", leasekeeper.ErrLost)

// errStopping means that the work of an earlier leadership goes on.
var errStopping = errors.New("clientgolease: the work of this candidate's last leadership has not ended yet")

// Lock is one candidate's place in an election. One elector at a time may use it, and then another.
type Lock struct {
	keeper   *leasekeeper.Keeper
	name     string
	identity string
	timing   Timing

	mu      sync.Mutex
	guarded bool              // Config has been called
	within  *frame            // the call of Run that goes on; nil if none does
	tenure  *tenure           // the lease that was granted, until the elector may claim again; nil if there is none
	seen    leasekeeper.Token // of the other leader in the last record that Get returned
}

// New returns a candidate for the leadership under a name. It claims nothing: an elector does that.
func New(k *leasekeeper.Keeper, name string, o Options) (*Lock, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	t, err := o.durations()
	if err != nil {
		return nil, err
	}
	identity, err := o.identity()
	if err != nil {
		return nil, err
	}
	return &Lock{keeper: k, name: name, identity: identity, timing: t}, nil
}

// Identity returns the identity under which other candidates see this one.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the name, for logs.
func (l *Lock) Describe() string { return "leasekeeper/" + l.name }

// Timing returns the durations that the elector must use. [Lock.Config] contains them.
func (l *Lock) Timing() Timing { return l.timing }

// RecordEvent does nothing: events are objects of the Kubernetes API.
func (l *Lock) RecordEvent(string) {}

// Lease returns the lease of the leadership that goes on, for its token and its Check. It is nil if this candidate does
// not lead. After a loss it is the lost lease until the leader's work has ended.
func (l *Lock) Lease() *leasekeeper.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenure
	if t == nil || !t.taken || t.stopped && t.isIdle {
		return nil
	}
	return t.lease
}

// seesWork reports whether the lock sees when the work of the leader ends: either by the callbacks of Config or by Run.
// The lock is held.
func (l *Lock) seesWork() bool { return l.guarded != (l.within != nil) }

// Get is called by the elector. For a candidate it waits in the queue of the name, as the package's documentation says.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, err := l.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(record)
	return record, raw, err
}

func (l *Lock) read(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	l.mu.Lock()
	if !l.seesWork() {
		l.mu.Unlock()
		return nil, ErrUnguarded
	}
	t := l.tenure
	leading, held, stopped := false, false, false
	if t != nil {
		leading, held, stopped = t.taken && !t.stopped, t.held(), t.stopped
	}
	l.mu.Unlock()
	switch {
	case t == nil:
		return l.stand(ctx)
	case leading && held:
		return l.own(t), nil
	case leading:
		info, err := l.keeper.Get(ctx, l.name)
		if err != nil {
			return nil, err
		}
		return l.other(info), nil
	case stopped:
		if err := l.forget(ctx, t); err != nil {
			return nil, err
		}
		return l.stand(ctx)
	case held:
		return l.vacant(t), nil // the elector did not take it at once
	}
	if err := l.forget(ctx, t); err != nil { // lost before the elector took it
		return nil, err
	}
	return l.stand(ctx)
}

// forget waits until a tenure that is over has left the store, so that the lock can claim again. It waits for at most a
// RetryPeriod.
func (l *Lock) forget(ctx context.Context, t *tenure) error {
	timer := time.NewTimer(l.timing.RetryPeriod)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenure == t {
		l.tenure = nil
	}
	return nil
}

// stand reports a leader that the candidate has not seen. Otherwise it waits in the queue of the name.
func (l *Lock) stand(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	info, err := l.keeper.Get(ctx, l.name)
	if err != nil {
		return nil, err
	}
	if info.Held && !l.hasSeen(info) {
		return l.other(info), nil
	}
	t := l.claim(ctx)
	poll := time.NewTicker(l.timing.RetryPeriod)
	defer poll.Stop()
	for {
		select {
		case <-t.granted:
			return l.accept(ctx, t)
		case <-t.done:
			return l.refused(ctx, t)
		case <-ctx.Done():
			t.abandon()
			return nil, ctx.Err()
		case <-poll.C:
		}
		info, err := l.keeper.Get(ctx, l.name)
		// A leader with this candidate's identity is perhaps this lock: its claim may have been granted a moment ago.
		if err == nil && info.Held && !l.hasSeen(info) && info.Holder.Card.Text != l.identity && !t.isGranted() {
			t.abandon()
			return l.other(info), nil
		}
	}
}

// accept makes a granted lease the lock's own.
func (l *Lock) accept(ctx context.Context, t *tenure) (*resourcelock.LeaderElectionRecord, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil || l.tenure != nil || !l.seesWork() {
		t.abandon()
		return nil, errors.Join(errNotLeading, ctx.Err())
	}
	l.tenure = t
	t.watch()
	return l.vacant(t), nil
}

// refused returns the leader if that is why the claim has failed.
func (l *Lock) refused(ctx context.Context, t *tenure) (*resourcelock.LeaderElectionRecord, error) {
	if !errors.Is(t.err, leasekeeper.ErrHeld) { // another lock of this keeper holds the name
		return nil, t.err
	}
	info, err := l.keeper.Get(ctx, l.name)
	if err != nil {
		return nil, err
	}
	if !info.Held {
		return nil, t.err
	}
	return l.other(info), nil
}

// hasSeen reports whether Get has returned this leader in its last record of another leader.
func (l *Lock) hasSeen(i leasekeeper.Info) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return i.Token == l.seen
}

// vacant is the record of a name whose lease the lock has been granted, and the elector has not taken yet.
func (l *Lock) vacant(t *tenure) *resourcelock.LeaderElectionRecord {
	now := metav1.Now()
	return &resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: seconds(l.timing.LeaseDuration), AcquireTime: now, RenewTime: now, LeaderTransitions: int(t.lease.Token()),
	}
}

// own is the record of the lock's own leadership.
func (l *Lock) own(t *tenure) *resourcelock.LeaderElectionRecord {
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity: l.identity, LeaseDurationSeconds: seconds(t.lease.TTL()), AcquireTime: metav1.NewTime(t.since),
		RenewTime: metav1.Now(), LeaderTransitions: int(t.lease.Token()),
	}
}

// other is the record of a name as the store shows it, when this lock does not lead.
func (l *Lock) other(i leasekeeper.Info) *resourcelock.LeaderElectionRecord {
	now := metav1.Now()
	r := &resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: seconds(l.timing.LeaseDuration), AcquireTime: now, RenewTime: now, LeaderTransitions: int(i.Token),
	}
	if !i.Held {
		return r
	}
	l.mu.Lock()
	l.seen = i.Token
	l.mu.Unlock()
	r.LeaseDurationSeconds = seconds(max(i.TTL, l.timing.LeaseDuration))
	r.HolderIdentity = i.Holder.Card.Text
	switch r.HolderIdentity {
	case "":
		r.HolderIdentity = i.Holder.ID
	case l.identity: // the elector would believe that it leads
		r.HolderIdentity += " (" + i.Holder.ID + ")"
	}
	return r
}

// seconds rounds a duration up: with zero seconds the elector would judge every record to have expired.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Create does the same as Update. Get never reports that a record is missing, so no elector calls it.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

// Update is called by the elector: to begin to lead, to go on leading, and without an identity to release the name.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		return l.release(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenure
	switch {
	case !l.seesWork():
		return ErrUnguarded
	case t == nil:
		return errNotLeading
	}
	if err := t.lease.Check(); err != nil {
		return err
	}
	if t.ending || t.stopped {
		return errNotLeading
	}
	least := l.timing.RenewDeadline // the elector tries to renew at once
	if t.taken {
		least += l.timing.RetryPeriod
	}
	if left := t.lease.Remaining(); left <= least {
		return fmt.Errorf("clientgolease: %v has not been renewed in time: it lasts %v, and this elector gives up %v after its last success",
			t.lease, left.Round(time.Millisecond), least)
	}
	if !t.taken {
		t.taken, t.since = true, time.Now()
		if l.within != nil {
			t.running, t.endWork = true, l.within.end
		} else {
			t.pending = true
		}
		return nil
	}
	if t.pending && time.Since(t.since) > l.timing.RetryPeriod {
		return ErrUnguarded // Config was called, and another LeaderElectionConfig is used
	}
	return nil
}

// release is Update without an identity. Within Run it does nothing, because Run releases.
func (l *Lock) release(ctx context.Context) error {
	l.mu.Lock()
	t := l.tenure
	switch {
	case t == nil || !t.taken:
		l.mu.Unlock()
		return errNotLeading
	case l.within != nil:
		l.mu.Unlock()
		return nil
	}
	lost := t.lease.Check()
	t.end(errReleased)
	early := t.early
	l.mu.Unlock()
	switch {
	case lost != nil:
		return lost
	case early:
		return nil // released after OnStoppedLeading
	}
	err := t.wait(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.isIdle {
		return fmt.Errorf("clientgolease: OnStartedLeading has not returned, and %s is released when it has: %w", l.name, ctx.Err())
	}
	return err
}
