package client

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// liveEvery is the time from one request of a live view of a status to the next.
const liveEvery = 2 * time.Second

// live shows the status in the terminal until q or Ctrl-C.
func (f *clientFlags) live(cmd *cobra.Command) error {
	if f.output != console.Table || !console.CanShow(cmd.OutOrStdout()) {
		return command.WrongUsage("--watch shows a live view in a terminal, as a table only: for a pipe or JSON repeat the command without --watch")
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cmd.SetContext(ctx)
	database, err := f.database()
	if err != nil {
		return err
	}
	if database != "" {
		if err := f.check(); err != nil {
			return err
		}
		return f.liveDatabase(ctx, cmd, database)
	}
	return withConnection(cmd, f, func(ctx context.Context, c *client) error {
		return f.show(ctx, cmd, func(ctx context.Context, w io.Writer) error {
			s, err := c.status(ctx)
			if err != nil {
				return c.explain("ask for the status", err)
			}
			return s.print(w, console.Table)
		})
	})
}

// liveDatabase shows the status of a database in the terminal. It opens the database only when it has tables: opening it
// earlier would create them.
func (f *clientFlags) liveDatabase(ctx context.Context, cmd *cobra.Command, rawURL string) error {
	var b backend.Backend
	defer func() {
		if b != nil {
			_ = b.Close(context.WithoutCancel(ctx)) // no change is pending
		}
	}()
	var described *storeStatus
	return f.show(ctx, cmd, func(ctx context.Context, w io.Writer) (err error) {
		if b == nil {
			if described, err = inspectStore(ctx, rawURL); err != nil {
				return err
			}
			if described.NoTables {
				return described.print(w, console.Table)
			}
			if b, err = backend.Open(ctx, rawURL); err != nil {
				b = nil
				return store.Explain("open the store", err)
			}
		}
		s, err := described.counted(ctx, b)
		if err != nil {
			return store.Explain("ask for the status", err)
		}
		return s.print(w, console.Table)
	})
}

// show shows what ask prints, again and again. After the first success, a failure is printed and does not end the view.
func (f *clientFlags) show(ctx context.Context, cmd *cobra.Command, ask func(ctx context.Context, w io.Writer) error) error {
	succeeded := false
	view := console.View{Title: cmd.CommandPath() + " --watch", Every: liveEvery, AtLeast: liveEvery}
	view.Draw = func(ctx context.Context, w io.Writer, _ int) error {
		asking, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		err := ask(asking, w)
		var known *command.Error
		if err == nil || !succeeded || ctx.Err() != nil || !errors.As(err, &known) {
			succeeded = err == nil
			return err
		}
		return console.PrintLine(w, "%v; trying again", err)
	}
	return view.Show(ctx, cmd.OutOrStdout(), cmd.InOrStdin())
}
