package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/remote" // leasekeeper://
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/filefence"
)

const (
	// leaseName is the name that the workers hold in turns.
	leaseName = "demo/report"
	// leaseTTL is the TTL of their leases. The election of a new leader fits into what is left of it.
	leaseTTL = 3 * time.Second
	// writeEvery is the time between two writes of a holder.
	writeEvery = 200 * time.Millisecond
	// mostText is the size in bytes above which a worker begins the file again. Only a demo that goes on with --keep reaches it.
	mostText = 256 << 10
	// retryAfter is the pause after a claim that the store refused or did not answer.
	retryAfter = 200 * time.Millisecond
)

// worker is one of the two processes that want the name. Only its own goroutine uses it.
type worker struct {
	file   string // the resource
	keeper *leasekeeper.Keeper
	out    io.Writer     // receives the reports
	orders <-chan string // from the scenario
	slow   bool          // whether the next write waits for orderWrite
	wrote  int           // the number of the last write
}

// newWorker returns the command of a worker process.
func newWorker() *cobra.Command {
	var store, holder, file string
	cmd := &cobra.Command{
		Use: "worker", Short: "Hold the name of the demo in turns with the other worker", Hidden: true,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := leasekeeper.Open(cmd.Context(), store, leasekeeper.WithHolder(holder), leasekeeper.WithTTL(leaseTTL))
			if err != nil {
				return command.Failed("a worker of the demo cannot open %s: %v; workers are started by `leasekeeper demo`", store, err)
			}
			defer k.Close() // the process ends
			orders := make(chan string, 8)
			go obey(cmd.InOrStdin(), orders) // it ends with the process
			w := &worker{file: file, keeper: k, out: cmd.OutOrStdout(), orders: orders}
			return w.work(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&store, "store", "", "the URL of the cluster")
	cmd.Flags().StringVar(&holder, "holder", "", "the name of the worker")
	cmd.Flags().StringVar(&file, "file", "", "the file to write")
	return cmd
}

// obey forwards the lines of standard input to orders. At the end of the input the scenario is gone, so obey ends the
// process.
func obey(in io.Reader, orders chan<- string) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		orders <- lines.Text()
	}
	os.Exit(command.ExitFailed)
}

// work acquires the name again and again. It returns when ctx ends, or when the scenario no longer reads reports.
func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.report(report{Kind: reportWaits}); err != nil {
			return err
		}
		lease, err := w.keeper.Acquire(ctx, leaseName)
		if err == nil {
			err = w.hold(ctx, lease)
		} else {
			err = w.failed(ctx, err)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// failed reports an error of the store, and pauses.
func (w *worker) failed(ctx context.Context, why error) error {
	select {
	case <-time.After(retryAfter):
	case <-ctx.Done():
	}
	return w.report(report{Kind: reportFailed, Why: why.Error()})
}

// hold writes to the resource until the lease ends or the scenario orders its release. An error means that the process
// must end.
func (w *worker) hold(ctx context.Context, lease *leasekeeper.Lease) error {
	w.forgetOrders()
	if err := w.reportOf(lease, report{Kind: reportHolds}); err != nil {
		return err
	}
	text, err := w.takeOver(lease)
	if err != nil {
		return errors.Join(w.failed(ctx, err), w.release(ctx, lease))
	}
	next := time.NewTicker(writeEvery)
	defer next.Stop()
	for {
		select {
		case <-lease.Context().Done():
			return w.reportOf(lease, report{Kind: reportEnded, Why: context.Cause(lease.Context()).Error()})
		case order := <-w.orders:
			if order == orderRelease {
				return w.release(ctx, lease)
			}
			w.slow = order == orderSlow
		case <-next.C:
			if lease.Check() != nil {
				continue // the context of the lease ends now
			}
			if text, err = w.write(ctx, lease, text); err != nil {
				return err
			}
		}
	}
}

// forgetOrders drops the orders for an earlier tenure: they came when its lease ended. The scenario orders nothing about
// a tenure before the worker has reported it.
func (w *worker) forgetOrders() {
	w.slow = false
	for {
		select {
		case <-w.orders:
		default:
			return
		}
	}
}

// takeOver makes the resource refuse all older tokens, and returns what it contains.
func (w *worker) takeOver(lease *leasekeeper.Lease) ([]byte, error) {
	if err := filefence.Advance(w.file, lease.Token()); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(w.file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // no worker has written yet
	}
	return text, err
}

// write replaces the resource by text and one more line, and returns its new content. The caller has checked the lease.
// If the scenario has ordered it, write pauses between that check and the write, as any program may.
func (w *worker) write(ctx context.Context, lease *leasekeeper.Lease, text []byte) ([]byte, error) {
	w.wrote++
	r := report{Kind: reportWrote, Checked: clock.Now(), Write: w.wrote}
	if w.slow {
		w.slow = false
		if err := w.reportOf(lease, report{Kind: reportChecked}); err != nil {
			return nil, err
		}
		if err := w.awaitWrite(ctx); err != nil {
			return nil, err
		}
	}
	line := logLine{Token: lease.Token(), Holder: lease.Holder().ID, Process: os.Getpid(), Write: w.wrote}
	if len(text) > mostText {
		text = nil
	}
	longer := fmt.Appendln(text[:len(text):len(text)], line)
	err := filefence.WriteFile(w.file, lease.Token(), longer, 0o600)
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		r.Kind, r.Highest = reportRefused, stale.Highest
		longer = text
	case err != nil:
		r.Kind, r.Why = reportFailed, err.Error()
		longer = text
	}
	return longer, w.reportOf(lease, r)
}

// awaitWrite waits for orderWrite.
func (w *worker) awaitWrite(ctx context.Context) error {
	for {
		select {
		case order := <-w.orders:
			if order == orderWrite {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release stops the work and releases the name.
func (w *worker) release(ctx context.Context, lease *leasekeeper.Lease) error {
	if err := w.reportOf(lease, report{Kind: reportReleased}); err != nil {
		return err
	}
	if err := lease.Release(ctx); err != nil {
		return w.report(report{Kind: reportFailed, Why: err.Error()})
	}
	return nil
}

// reportOf reports something about the tenure of a lease.
func (w *worker) reportOf(lease *leasekeeper.Lease, r report) error {
	r.Token, r.At = lease.Token(), clock.Now()
	if left := lease.Remaining(); left > 0 {
		r.Until = r.At.Add(left)
	}
	return w.report(r)
}

func (w *worker) report(r report) error {
	if r.At == (clock.Instant{}) {
		r.At = clock.Now()
	}
	return console.PrintJSONLine(w.out, r)
}
