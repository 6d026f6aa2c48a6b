package main

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
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// waitFlags say how to wait for a name, as those of flock(1) do.
type waitFlags struct {
	nonblock bool
	wait     string
	conflict int
	quiet    bool

	limit time.Duration // of --wait; negative for none
}

func (f *waitFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "fail at once if somebody holds the name")
	flags.StringVarP(&f.wait, "wait", "w", "", "fail if the name is not free after so many `seconds`, such as 10 or 0.5 (default: wait for ever)")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", exitBusy, "the exit `code` when the name is not free")
	flags.BoolVar(&f.quiet, "quiet-if-busy", false, "say nothing when the name is not free")
}

func (f *waitFlags) complete() error {
	f.limit = -1
	if f.wait != "" {
		seconds, err := strconv.ParseFloat(f.wait, 64)
		if err != nil || math.IsNaN(seconds) || seconds < 0 || seconds > math.MaxInt64/float64(2*time.Second) {
			return wrongUsage("%q is not a number of seconds: write --wait 10, or 0.5", f.wait)
		}
		f.limit = time.Duration(seconds * float64(time.Second))
	}
	if f.nonblock && f.limit > 0 {
		return wrongUsage("--nonblock does not wait, and --wait does: leave one of them away")
	}
	if f.limit == 0 { // as with flock
		f.nonblock = true
	}
	if f.conflict < 0 || f.conflict > 255 {
		return wrongUsage("--conflict-exit-code %d: write a number from 0 to 255", f.conflict)
	}
	return nil
}

// interruption notes the first signal that comes while a name is waited for.
type interruption struct {
	signals chan os.Signal
	stop    chan struct{}
	done    chan struct{}
	by      os.Signal // nil if none came; to be read after end
}

// interruptible returns a context that ends with the first signal to end this process.
func interruptible(parent context.Context) (context.Context, *interruption) {
	ctx, cancel := context.WithCancel(parent)
	i := &interruption{signals: make(chan os.Signal, 16), stop: make(chan struct{}), done: make(chan struct{})}
	supervise.Ends(i.signals)
	go func() {
		defer close(i.done)
		defer cancel()
		select {
		case i.by = <-i.signals:
			signal.Stop(i.signals) // a user who sends a second one does not want to wait
		case <-i.stop:
		}
	}()
	return ctx, i
}

// end ends the waiting, and returns the signal that came, if one did. Later ones stay in the channel.
func (i *interruption) end() os.Signal {
	close(i.stop)
	<-i.done
	return i.by
}

// dieOf ends this process by the signal that interrupted it, or with the exit code that looks like that.
func dieOf(by os.Signal) error {
	supervise.Die(by)
	code := exitFailed
	if number, ok := by.(syscall.Signal); ok {
		code = exitSignal + int(number)
	}
	return &exitError{code: code}
}

// acquire holds the name, waiting as the flags say. A name that is not free is an exitError.
func (f *waitFlags) acquire(ctx context.Context, k *leasekeeper.Keeper, name string, o ...leasekeeper.Option) (*leasekeeper.Lease, error) {
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
	// The time is over: because of who holds it, or because nobody answers?
	asking, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	refused := err
	info, err := k.Get(asking, name)
	if err != nil {
		return nil, fmt.Errorf("%w after waiting for %v", err, f.limit)
	}
	if !info.Held && errors.Is(refused, leasekeeper.ErrUnavailable) {
		return nil, fmt.Errorf("nobody holds %s, but no claim to it was taken on within %v: %w", name, f.limit, refused)
	}
	why := fmt.Errorf("%s was not free within %v", name, f.limit)
	if info.Held {
		why = fmt.Errorf("%w: it is held by %s (token %d)", why, info.Holder, info.Token)
	}
	return nil, f.busy(why)
}

// askLimit bounds the question who holds a name that was not to be had.
const askLimit = 2 * time.Second

func (f *waitFlags) busy(why error) error {
	if f.quiet {
		why = nil
	}
	return &exitError{code: f.conflict, cause: why, busy: true}
}

// checkedName refuses an argument that is no name.
func checkedName(name string) error {
	if err := backend.CheckName(name); err != nil {
		return &exitError{code: exitUsage, cause: err}
	}
	return nil
}
