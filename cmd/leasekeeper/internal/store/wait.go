package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// WaitFlags are the flags for waiting for a name. They are those of flock(1).
type WaitFlags struct {
	nonblock bool
	wait     string
	conflict int
	quiet    bool

	limit time.Duration // the value of --wait; negative for no limit
}

// Register registers the flags.
func (f *WaitFlags) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "fail at once if the name is held")
	flags.StringVarP(&f.wait, "wait", "w", "", "fail if the name is not free after this number of `seconds`, such as 10 or 0.5 (default: wait forever)")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", command.ExitBusy, "the exit `code` when the name is not free")
	flags.BoolVar(&f.quiet, "quiet-if-busy", false, "print nothing when the name is not free")
}

// Complete checks the flags.
func (f *WaitFlags) Complete() error {
	f.limit = -1
	if f.wait != "" {
		seconds, err := strconv.ParseFloat(f.wait, 64)
		if err != nil || math.IsNaN(seconds) || seconds < 0 || seconds > math.MaxInt64/float64(2*time.Second) {
			return command.WrongUsage("%q is not a number of seconds: write --wait 10, or 0.5", f.wait)
		}
		f.limit = time.Duration(seconds * float64(time.Second))
	}
	if f.nonblock && f.limit > 0 {
		return command.WrongUsage("--nonblock and --wait contradict each other: omit one of them")
	}
	if f.limit == 0 { // as with flock
		f.nonblock = true
	}
	if f.conflict < 0 || f.conflict > 255 {
		return command.WrongUsage("--conflict-exit-code %d: write a number from 0 to 255", f.conflict)
	}
	return nil
}

// interruption records the first signal that arrives while the command waits for a name.
type interruption struct {
	Signals chan os.Signal // receives the signals that [supervise.Ends] lists
	stop    chan struct{}  // closed by End
	done    chan struct{}  // closed when the goroutine has ended
	by      os.Signal      // the first signal; nil for none; valid after done
}

// Interruptible returns a context that ends with the first signal that asks this process to end.
func Interruptible(parent context.Context) (context.Context, *interruption) {
	ctx, cancel := context.WithCancel(parent)
	i := &interruption{Signals: make(chan os.Signal, 16), stop: make(chan struct{}), done: make(chan struct{})}
	supervise.NotifyTermination(i.Signals)
	go func() {
		defer close(i.done)
		defer cancel()
		select {
		case i.by = <-i.Signals:
			signal.Stop(i.Signals) // a second signal ends the process at once
		case <-i.stop:
		}
	}()
	return ctx, i
}

// End stops recording, and returns the signal that arrived; nil for none. Later signals stay in the channel Signals.
func (i *interruption) End() os.Signal {
	close(i.stop)
	<-i.done
	return i.by
}

// DieOf ends this process by the signal that interrupted it. If that fails, it returns the exit code of such a death.
func DieOf(by os.Signal) error {
	supervise.Die(by)
	code := command.ExitFailed
	if number, ok := by.(syscall.Signal); ok {
		code = command.ExitSignal + int(number)
	}
	return &command.Error{Code: code}
}

// Acquire acquires the name and waits as the flags say. If the name is not free, it returns a [command.Error] with the
// code of --conflict-exit-code.
func (f *WaitFlags) Acquire(ctx context.Context, k *leasekeeper.Keeper, name string, o ...leasekeeper.Option) (*leasekeeper.Lease, error) {
	if f.nonblock {
		l, err := k.TryAcquire(ctx, name, o...)
		if errors.Is(err, leasekeeper.ErrHeld) {
			return nil, f.busy(err)
		}
		return l, err
	}
	if f.limit < 0 {
		return k.Acquire(ctx, name, o...)
	}
	limited, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	l, err := k.Acquire(limited, name, o...)
	if err == nil || limited.Err() == nil || ctx.Err() != nil {
		return l, err
	}
	// The time limit has passed: either another program holds the name, or the store does not answer.
	asking, cancel := context.WithTimeout(ctx, AskLimit)
	defer cancel()
	refused := err
	info, err := k.Get(asking, name)
	if err != nil {
		return nil, fmt.Errorf("%w after waiting for %v", err, f.limit)
	}
	if !info.Held && errors.Is(refused, leasekeeper.ErrUnavailable) {
		return nil, fmt.Errorf("nobody holds %s, but the store accepted no claim within %v: %w", name, f.limit, refused)
	}
	why := fmt.Errorf("%s was not free within %v", name, f.limit)
	if info.Held {
		why = fmt.Errorf("%w: it is held by %s (token %d)", why, info.Holder, info.Token)
	}
	return nil, f.busy(why)
}

// AskLimit bounds the request for the holder of a name that could not be acquired.
const AskLimit = 2 * time.Second

// busy returns the error for a name that is not free. why is dropped with --quiet-if-busy.
func (f *WaitFlags) busy(why error) error {
	if f.quiet {
		why = nil
	}
	return &command.Error{Code: f.conflict, Cause: why, Busy: true}
}

// CheckedName returns an error if the argument is not a valid name.
func CheckedName(name string) error {
	if err := backend.CheckName(name); err != nil {
		return &command.Error{Code: command.ExitUsage, Cause: err}
	}
	return nil
}
