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

// WaitFlags say how to wait for a name, as those of flock(1) do.
type WaitFlags struct {
	nonblock bool
	wait     string
	conflict int
	quiet    bool

	limit time.Duration // of --wait; negative for none
}

func (f *WaitFlags) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "fail at once if the name is held")
	flags.StringVarP(&f.wait, "wait", "w", "", "fail if the name is not free after this number of `seconds`, such as 10 or 0.5 (default: wait forever)")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", command.ExitBusy, "the exit `code` when the name is not free")
	flags.BoolVar(&f.quiet, "quiet-if-busy", false, "print nothing when the name is not free")
}

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

// interruption notes the first signal that comes while a name is waited for.
type interruption struct {
	Signals chan os.Signal
	stop    chan struct{}
	done    chan struct{}
	by      os.Signal // nil if none came; to be read after end
}

// Interruptible returns a context that ends with the first signal to end this process.
func Interruptible(parent context.Context) (context.Context, *interruption) {
	ctx, cancel := context.WithCancel(parent)
	i := &interruption{Signals: make(chan os.Signal, 16), stop: make(chan struct{}), done: make(chan struct{})}
	supervise.Ends(i.Signals)
	go func() {
		defer close(i.done)
		defer cancel()
		select {
		case i.by = <-i.Signals:
			signal.Stop(i.Signals) // a user who sends a second one does not want to wait
		case <-i.stop:
		}
	}()
	return ctx, i
}

// End ends the waiting, and returns the signal that came, if one did. Later ones stay in the channel.
func (i *interruption) End() os.Signal {
	close(i.stop)
	<-i.done
	return i.by
}

// DieOf ends this process by the signal that interrupted it, or with the exit code that looks like that.
func DieOf(by os.Signal) error {
	supervise.Die(by)
	code := command.ExitFailed
	if number, ok := by.(syscall.Signal); ok {
		code = command.ExitSignal + int(number)
	}
	return &command.Error{Code: code}
}

// Acquire holds the name, waiting as the flags say. A name that is not free is an exitError.
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
	// The time is over: because of who holds it, or because nobody answers?
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

// AskLimit bounds the question who holds a name that was not to be had.
const AskLimit = 2 * time.Second

func (f *WaitFlags) busy(why error) error {
	if f.quiet {
		why = nil
	}
	return &command.Error{Code: f.conflict, Cause: why, Busy: true}
}

// CheckedName refuses an argument that is no name.
func CheckedName(name string) error {
	if err := backend.CheckName(name); err != nil {
		return &command.Error{Code: command.ExitUsage, Cause: err}
	}
	return nil
}
