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

// run holds the name, runs the command, and gives the name back.
func (f *runFlags) run(cmd *cobra.Command, name string) error {
	ctx, interrupted := store.Interruptible(cmd.Context())
	k, err := f.open(ctx)
	if err != nil {
		if by := interrupted.End(); by != nil {
			return store.DieOf(by)
		}
		return storeFailed("open the store", err)
	}
	l, err := f.wait.Acquire(ctx, k, name)
	by := interrupted.End()
	if err == nil && by == nil {
		err = f.agree(l.TTL())
	}
	switch {
	case by != nil:
		f.close(cmd, k)
		return store.DieOf(by)
	case err != nil:
		f.close(cmd, k)
		return storeFailed("acquire "+name, err)
	}
	outcome, err := supervise.Run(f.order(cmd, l, interrupted.Signals))
	if outcome.Remains { // the name must not pass on while something may act
		return asOwn(err)
	}
	f.close(cmd, k)
	return f.tell(name, outcome, err)
}

func (f *runFlags) open(ctx context.Context) (*leasekeeper.Keeper, error) {
	options := []leasekeeper.KeeperOption{leasekeeper.WithTTL(f.ttl), leasekeeper.WithCard(f.card())}
	if f.holder != "" {
		options = append(options, leasekeeper.WithHolder(f.holder))
	}
	ctx, cancel := context.WithTimeout(ctx, settings.DefaultTimeout)
	defer cancel()
	return leasekeeper.Open(ctx, f.Store, options...)
}

// order says what to run under the lease.
func (f *runFlags) order(cmd *cobra.Command, l *leasekeeper.Lease, signals chan os.Signal) supervise.Options {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return supervise.Options{
		Command: supervise.Command{
			Path: f.path, Args: f.args, Env: environmentFor(os.Environ(), l, f.storeForCommand()),
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: !f.noForeground,
		},
		Terms:     f.terms,
		Tenure:    &heldName{lease: l},
		GuardPath: self, GuardArgs: []string{supervise.GuardName},
		Signals: signals,
		Tell:    func(text string) { console.Warn(cmd.ErrOrStderr(), "%s: %s", l.Name(), text) },
	}
}

// storeForCommand is the URL that the command receives. Its environment can be read by more programs than this one's
// command line or file of settings, and it needs the password only to ask the store itself.
func (f *runFlags) storeForCommand() string {
	if f.withPassword {
		return f.Store
	}
	return backend.WithoutSecrets(f.Store)
}

// environmentFor adds what the command is told about its lease.
func environmentFor(environ []string, l *leasekeeper.Lease, store string) []string {
	told := []string{
		settings.NameVariable + "=" + l.Name(),
		settings.TokenVariable + "=" + strconv.FormatUint(uint64(l.Token()), 10),
		settings.TTLVariable + "=" + strconv.FormatInt(l.TTL().Milliseconds(), 10),
		settings.HolderVariable + "=" + l.Holder().ID,
		settings.StoreVariable + "=" + store,
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return slices.ContainsFunc(told, func(t string) bool {
			name, _, _ := strings.Cut(t, "=")
			return strings.HasPrefix(entry, name+"=")
		})
	})
	return append(environ, told...)
}

// closeLimit bounds how long to wait until the store has confirmed that the name is free.
const closeLimit = 3 * time.Second

// close gives the name back, or leaves the line.
func (f *runFlags) close(cmd *cobra.Command, k *leasekeeper.Keeper) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), closeLimit)
	defer cancel()
	if err := k.Close(ctx); err != nil {
		console.Warn(cmd.ErrOrStderr(), "the store did not confirm the release; the name is free after %v at the latest: %v", f.ttl, store.WithoutPrefix(err))
	}
}

// tell turns the outcome into an exit code.
func (f *runFlags) tell(name string, o supervise.Outcome, err error) error {
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
		// Without us the whole group would have got it, a script that waits for us among it.
		supervise.DieWithGroup(os.Interrupt)
	}
	if code := o.ExitCode(); code != command.ExitDone {
		return &command.Error{Code: code}
	}
	return nil
}

// heldName is a lease as the tenure of a command.
type heldName struct {
	lease *leasekeeper.Lease
	end   clock.Instant // as it was told last; zero if it was not
}

func (h *heldName) Context() context.Context { return h.lease.Context() }

// sameDeadline is how far apart two estimates of one deadline may be.
const sameDeadline = 2 * time.Millisecond

// Deadline is never later than the lease's own by more than sameDeadline: the clocks are read before the
// lease reads them. Once the lease is lost the last one is the one that counts.
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
