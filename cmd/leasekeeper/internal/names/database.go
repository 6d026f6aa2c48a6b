package names

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// clientOf returns the client of a backend on a database. For other backends it returns an error that says that they do
// not offer what, and what to do instead.
func clientOf(b backend.Backend, what, instead string) (*claim.Client, error) {
	database, ok := b.(interface{ Client() *claim.Client })
	if !ok {
		return nil, &backend.UnsupportedError{Backend: b.Scheme(), What: what, Instead: instead}
	}
	return database.Client(), nil
}

// long is an operation that may take any time, as long as the store keeps answering.
type long struct {
	ctx    context.Context // ends when no answer came for limit
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
	line   *console.Progress
}

// newLong starts an operation whose context ends when no answer came for limit.
func newLong(cmd *cobra.Command, limit time.Duration) *long {
	l := &long{limit: limit, line: console.NewProgress(cmd.ErrOrStderr())}
	l.ctx, l.cancel = context.WithCancelCause(cmd.Context())
	l.timer = time.AfterFunc(limit, func() { l.cancel(context.DeadlineExceeded) })
	return l
}

// heard records that an answer came.
func (l *long) heard() { l.timer.Reset(l.limit) }

// progress records that an answer came, and shows on a terminal how far the operation is.
func (l *long) progress(format string, args ...any) {
	l.heard()
	l.line.Show(format, args...)
}

// end ends the operation, and adds to its error whether no answer came for limit.
func (l *long) end(err error) error {
	l.timer.Stop()
	l.line.Clear()
	if err != nil && errors.Is(context.Cause(l.ctx), context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no answer came for %v: %w", context.DeadlineExceeded, l.limit, err)
	}
	l.cancel(nil)
	return err
}

func newCollect() *cobra.Command {
	var flags store.Flags
	age := time.Duration(0)
	cmd := &cobra.Command{
		Use:   "collect [PREFIX]",
		Short: "Remove old records of free names from a database",
		Long: `Remove the records of names that begin with PREFIX, or of all names, if nobody has held the name for a time and it
is not pinned. The history of these names is lost.

A database keeps a record of every name that was ever held, so that its tokens never start again from 1. They do not
after this command either: it first raises the floor of the namespace, and all later tokens are above the floor.

The command can be interrupted and repeated at any time.`,
		Example: `  leasekeeper collect --older-than 720h
  leasekeeper collect builds/ --older-than 24h`,
		Args: command.Between(0, 1, "one prefix"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if age < 0 {
				return command.WrongUsage("--older-than %v is negative: write how long a name must have been free, such as 720h", age)
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				return collect(cmd, &flags, b, prefixOf(args), age)
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().DurationVar(&age, "older-than", 30*24*time.Hour, "keep names that were held within this `duration`")
	return cmd
}

// collected is the JSON output of `collect`.
type collected struct {
	Removed int `json:"removed"`
}

func collect(cmd *cobra.Command, flags *store.Flags, b backend.Backend, prefix string, age time.Duration) error {
	const doing = "collect old records"
	client, err := clientOf(b, "collecting records", "it keeps no records of free names")
	if err != nil {
		return store.Explain(doing, err)
	}
	const page = 12 // timeouts per answer, because an answer covers a page of records
	work := newLong(cmd, page*flags.Timeout)
	removed, err := client.Collect(work.ctx, claim.Collection{Prefix: prefix, Age: age, Progress: func(seen, removed int) {
		work.progress("%d records checked, %d removed", seen, removed)
	}})
	if err = work.end(err); err != nil {
		return store.Explain(fmt.Sprintf("%s (%d were removed before that)", doing, removed), err)
	}
	if flags.Output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), collected{removed})
	}
	return console.PrintLine(cmd.OutOrStdout(), "%s", console.Plural(removed, "record was removed", "records were removed"))
}
