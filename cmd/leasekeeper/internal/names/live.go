package names

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

const (
	liveEvery   = 2 * time.Second        // from one reading of the names to the next, without a change
	liveAtLeast = 250 * time.Millisecond // from one reading to the next, with changes
)

// withKeeper runs work with a keeper on the chosen store, which ends with SIGINT or SIGTERM. The keeper holds no lease.
func withKeeper(cmd *cobra.Command, flags *store.Flags, work func(ctx context.Context, k *leasekeeper.Keeper) error) error {
	if err := flags.Complete(cmd); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	opening, cancel := context.WithTimeout(ctx, flags.Timeout)
	k, err := leasekeeper.Open(opening, flags.Store)
	cancel()
	if err != nil {
		return store.Explain("open the store", err)
	}
	defer k.Close()
	return store.NotAnAnswer(work(ctx, k))
}

// live shows the names that begin with prefix in the terminal, until q or Ctrl-C.
func live(cmd *cobra.Command, flags *store.Flags, prefix string) error {
	if flags.Output != console.Table || !console.CanShow(cmd.OutOrStdout()) {
		return command.WrongUsage("--watch shows a live view in a terminal, as a table only: for a pipe or JSON write `leasekeeper watch`, which prints a line for each change")
	}
	return withKeeper(cmd, flags, func(ctx context.Context, k *leasekeeper.Keeper) error {
		ctx, cancel := context.WithCancel(ctx)
		changed := make(chan struct{}, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			notify(ctx, k, prefix, changed)
		}()
		defer func() {
			cancel()
			<-done
		}()
		l := &liveNames{k: k, prefix: prefix, timeout: flags.Timeout}
		view := console.View{
			Title: strings.TrimSpace("leasekeeper ls --watch " + prefix), Draw: l.draw, Every: liveEvery, AtLeast: liveAtLeast, Changed: changed,
		}
		return view.Show(ctx, cmd.OutOrStdout(), cmd.InOrStdin())
	})
}

// notify puts an element into changed when a name has changed, until ctx ends or the store offers no watch.
func notify(ctx context.Context, k *leasekeeper.Keeper, prefix string, changed chan<- struct{}) {
	for _, err := range k.Watch(ctx, prefix) {
		if err != nil && !errors.Is(err, leasekeeper.ErrUnavailable) {
			return // the view reads the names from time to time
		}
		select {
		case changed <- struct{}{}:
		default: // a change is noted already
		}
	}
}

// liveNames is the page of a live view of names.
type liveNames struct {
	k       *leasekeeper.Keeper
	prefix  string
	timeout time.Duration // for one reading
	shown   bool          // whether a reading has succeeded
}

// draw reads the first names, as many as the page has lines, and prints them. After the first success, a failure is
// printed and does not end the view.
func (l *liveNames) draw(ctx context.Context, w io.Writer, lines int) error {
	reading, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	rows, more, err := l.read(reading, max(1, lines-2))
	if err != nil {
		if err = store.Explain("list names", err); !l.shown || ctx.Err() != nil {
			return err
		}
		return console.PrintLine(w, "%v; trying again", err)
	}
	l.shown = true
	if err := console.PrintTable(w, rows, console.Shorten(1), console.Paint(nameTone)); err != nil || !more {
		return err
	}
	return console.PrintLine(w, "… and more names")
}

// read returns the rows of at most most names, and whether there are more.
func (l *liveNames) read(ctx context.Context, most int) (rows [][]string, more bool, err error) {
	rows = [][]string{nameHeader}
	for i, err := range l.k.List(ctx, l.prefix) {
		if err != nil && i.Name == "" {
			return nil, false, err
		}
		if len(rows) > most {
			return rows, true, nil
		}
		rows = append(rows, nameRow(i))
	}
	return rows, false, nil
}

// nameHeader has the titles of the columns of `ls`.
var nameHeader = []string{"NAME", "HOLDER", "TOKEN", "REMAINING", "WAITING"}

// nameRow returns the row of a name in the table of `ls`.
func nameRow(i backend.Info) []string {
	name := console.Readable([]byte(i.Name))
	switch {
	case i.Err != nil:
		return []string{name, unreadable, "-", "-", "-"}
	case i.Held:
		return []string{name, i.Holder.String(), tokenText(i.Token), roughly(i.Remaining), waiting(i)}
	}
	return []string{name, "-", "-", "-", waiting(i)}
}
