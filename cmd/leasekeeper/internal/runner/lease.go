package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// run acquires the name, runs the command, and releases the name.
func (f *runFlags) run(cmd *cobra.Command, name string) error {
	ctx, interrupted := store.Interruptible(cmd.Context())
	order := f.order(cmd, name, interrupted.Signals)
	if f.tick.IsZero() { // a tick may be completed already, and then there is nothing to guard
		order.Spare = supervise.StartGuard(order)
		defer order.Spare.Close()
	}
	k, err := f.open(ctx)
	if err != nil {
		if by := interrupted.End(); by != nil {
			order.Spare.Close()
			return store.DieOf(by)
		}
		return storeFailed("open the store", err)
	}
	if f.completed(ctx, k, name) {
		_ = interrupted.End()
		f.close(cmd, k)
		return nil
	}
	l, err := f.wait.Acquire(ctx, k, name)
	by := interrupted.End()
	if err == nil && by == nil {
		err = f.agree(l.TTL())
	}
	switch {
	case by != nil:
		f.close(cmd, k)
		order.Spare.Close()
		return store.DieOf(by)
	case err != nil:
		f.close(cmd, k)
		return storeFailed("acquire "+name, err)
	}
	if !f.tick.IsZero() {
		if err := l.CheckTick(cmd.Context(), f.tick); err != nil {
			f.close(cmd, k)
			return f.unlessDone(name, err)
		}
	}
	order.Command.Env = environmentFor(f.environ(), l, f.storeForCommand())
	order.Terms, order.Tenure = f.terms, &heldName{lease: l}
	outcome, err := supervise.Run(order)
	if outcome.Remains { // no other process may get the name while a process of the command may still act
		return asOwn(err)
	}
	recording := f.record(cmd.Context(), l, outcome, err)
	f.close(cmd, k)
	if exit := f.exitError(name, outcome, err); exit != nil {
		return exit
	}
	return recording
}

// completed reports whether the store says that the tick needs no run. That saves the wait for the name; the holder of the
// name asks once more.
func (f *runFlags) completed(ctx context.Context, k *leasekeeper.Keeper, name string) bool {
	if f.tick.IsZero() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, settings.DefaultTimeout)
	defer cancel()
	m, err := k.Mark(ctx, name)
	if err != nil {
		return false
	}
	done, err := m.Includes(f.tick)
	return done && err == nil
}

// unlessDone returns nil if err says that the tick is done, because the work of this command then is done too.
func (f *runFlags) unlessDone(name string, err error) error {
	if errors.Is(err, leasekeeper.ErrDone) {
		return nil
	}
	return storeFailed("read the mark of "+name, err)
}

// record records the tick as completed, with the release of the name, if the command has ended with code 0.
func (f *runFlags) record(ctx context.Context, l *leasekeeper.Lease, o supervise.Outcome, failed error) error {
	if f.tick.IsZero() || failed != nil || o.Stopped || o.Interrupted || o.ExitCode() != command.ExitDone {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if err := l.Complete(ctx, f.tick); err != nil {
		return storeFailed(fmt.Sprintf("record that the tick %v of %s is completed", f.tick, l.Name()), err)
	}
	return nil
}

func (f *runFlags) open(ctx context.Context) (*leasekeeper.Keeper, error) {
	options := []leasekeeper.KeeperOption{leasekeeper.WithTTL(f.ttl), leasekeeper.WithCard(f.card())}
	if f.most > 0 {
		options = append(options, leasekeeper.HoldAtMost(f.most))
	}
	if f.priority != 0 {
		options = append(options, leasekeeper.WithPriority(leasekeeper.Priority(f.priority)))
	}
	if f.least > 0 {
		options = append(options, leasekeeper.HoldAtLeast(f.least))
	}
	if f.holder != "" {
		options = append(options, leasekeeper.WithHolder(f.holder))
	}
	ctx, cancel := context.WithTimeout(ctx, settings.DefaultTimeout)
	defer cancel()
	return leasekeeper.Open(ctx, f.Store, options...)
}

// order returns the options for [supervise.Run], except those that need the lease.
func (f *runFlags) order(cmd *cobra.Command, name string, signals chan os.Signal) supervise.Options {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return supervise.Options{
		Command: supervise.Command{
			Path: f.path, Args: f.args,
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: !f.noForeground,
		},
		GuardPath: self, GuardArgs: []string{supervise.GuardName},
		Signals: signals,
		Report:  func(text string) { console.Warn(cmd.ErrOrStderr(), "%s: %s", name, text) },
	}
}

// storeForCommand returns the URL of the store that the command receives. It has no password unless --with-password is
// set: more programs can read the environment of the command than the settings of this process.
func (f *runFlags) storeForCommand() string {
	if f.withPassword {
		return f.Store
	}
	return backend.WithoutSecrets(f.Store)
}

// environ returns the environment of this process, without the password of a user unless --with-password is set.
func (f *runFlags) environ() []string {
	environ := os.Environ()
	if f.withPassword {
		return environ
	}
	return slices.DeleteFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, settings.PasswordVariable+"=") })
}

// environmentFor returns environ with the variables about the lease, which replace those of an outer lease.
func environmentFor(environ []string, l *leasekeeper.Lease, store string) []string {
	own := []string{
		settings.NameVariable + "=" + l.Name(),
		settings.TokenVariable + "=" + strconv.FormatUint(uint64(l.Token()), 10),
		settings.TTLVariable + "=" + strconv.FormatInt(l.TTL().Milliseconds(), 10),
		settings.HolderVariable + "=" + l.Holder().ID,
		settings.StoreVariable + "=" + store,
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return slices.ContainsFunc(own, func(t string) bool {
			name, _, _ := strings.Cut(t, "=")
			return strings.HasPrefix(entry, name+"=")
		})
	})
	return append(environ, own...)
}

// closeLimit bounds the wait for the store to confirm the release.
const closeLimit = 3 * time.Second

// close releases the name, or leaves the queue.
func (f *runFlags) close(cmd *cobra.Command, k *leasekeeper.Keeper) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), closeLimit)
	defer cancel()
	if err := k.Shutdown(ctx); err != nil {
		console.Warn(cmd.ErrOrStderr(), "the store did not confirm the release; the name is free after %v at the latest: %v", f.ttl, store.WithoutPrefix(err))
	}
}

// exitError turns the outcome of the command into an error with an exit code; nil for exit code 0.
func (f *runFlags) exitError(name string, o supervise.Outcome, err error) error {
	var start *supervise.StartError
	switch {
	case errors.As(err, &start):
		return &command.Error{Code: start.Code, Cause: err}
	case errors.Is(err, supervise.ErrTooLate):
		return &command.Error{Code: command.ExitLost, Cause: fmt.Errorf("%s: %w", name, err)}
	case err != nil:
		return asOwn(fmt.Errorf("%s: %w", name, err))
	case o.Stopped:
		return &command.Error{Code: command.ExitLost}
	case o.Interrupted:
		// Without leasekeeper the terminal would have interrupted the whole process group, including a script that
		// waits for this process.
		supervise.DieWithGroup(os.Interrupt)
	}
	if code := o.ExitCode(); code != command.ExitDone {
		return &command.Error{Code: code}
	}
	return nil
}

// heldName adapts a lease to the tenure that [supervise.Run] needs.
type heldName struct {
	lease *leasekeeper.Lease
	end   clock.Instant // the deadline that Deadline last returned; zero before the first call
}

// Context returns the context of the lease.
func (h *heldName) Context() context.Context { return h.lease.Context() }

// sameDeadline is the largest difference between two estimates of one deadline.
const sameDeadline = 2 * time.Millisecond

// Deadline returns the deadline of the lease. It is at most sameDeadline later than the lease's own, because Deadline
// reads the clocks before the lease does. After the loss of the lease it returns the last deadline.
func (h *heldName) Deadline() clock.Instant {
	now := clock.Now()
	left := h.lease.Remaining()
	if left <= 0 && h.end != (clock.Instant{}) {
		return h.end
	}
	end := now.Add(left)
	if moved := h.end.Until(end); moved > -sameDeadline && moved < sameDeadline {
		return h.end
	}
	h.end = end
	return end
}
