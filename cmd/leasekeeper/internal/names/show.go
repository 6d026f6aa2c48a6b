package names

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
	"github.com/leasekeeper/leasekeeper/internal/namejson"
)

func newLs() *cobra.Command {
	var flags store.Flags
	watch := false
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List names and their holders",
		Long: `List the names that begin with PREFIX, or all names, in order, with their holders. If the record of a name in a
database cannot be read, the command reports it on standard error, lists the other names, and exits with code 1.

With --watch, show the names in the terminal and keep them up to date, until q or Ctrl-C.`,
		Example: `  leasekeeper ls
  leasekeeper ls jobs/ -o json
  leasekeeper ls jobs/ --watch`,
		Args: command.Between(0, 1, "one prefix"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch {
				return live(cmd, &flags, prefixOf(args))
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				return list(ctx, cmd, b, prefixOf(args), flags.Output)
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "show a live view in the terminal, until q or Ctrl-C")
	return cmd
}

// prefixOf returns the optional argument PREFIX.
func prefixOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func list(ctx context.Context, cmd *cobra.Command, b backend.Backend, prefix, output string) error {
	k, err := leasekeeper.New(b)
	if err != nil {
		return store.Explain("list names", err)
	}
	all, rows := []namejson.Name{}, [][]string{nameHeader}
	unreadable := false
	for i, err := range k.List(ctx, prefix) {
		switch {
		case err != nil && i.Name != "":
			unreadable = true
			command.Report(store.Explain("read "+console.Readable([]byte(i.Name)), err), cmd.ErrOrStderr())
			continue
		case err != nil:
			return store.Explain("list names", err)
		}
		all = append(all, namejson.OfName(i))
		rows = append(rows, nameRow(i))
	}
	if output == console.JSON {
		err = console.PrintJSON(cmd.OutOrStdout(), all)
	} else {
		err = console.PrintTable(cmd.OutOrStdout(), rows, console.Shorten(1), console.Paint(nameTone))
	}
	if err == nil && unreadable {
		err = &command.Error{Code: command.ExitFailed} // the reasons are printed already
	}
	return err
}

func tokenText(t leasekeeper.Token) string { return strconv.FormatUint(uint64(t), 10) }

func waiting(i backend.Info) string {
	if i.Waiting < 0 {
		return "unknown"
	}
	return strconv.Itoa(i.Waiting)
}

func newShow() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show the holder of a name",
		Long:    `Show the holder of a name. The exit code is 0 whether or not the name is held.`,
		Example: "  leasekeeper show jobs/nightly",
		Args:    store.OneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				info, err := b.Get(ctx, args[0])
				if err != nil {
					return store.Explain("read the name", err)
				}
				if flags.Output == console.JSON {
					return console.PrintJSON(cmd.OutOrStdout(), namejson.OfName(info))
				}
				return console.PrintTable(cmd.OutOrStdout(), showRows(info), console.Wrap(), console.Paint(shownTone))
			})
		},
	}
	flags.Register(cmd)
	return cmd
}

func showRows(i backend.Info) [][]string {
	rows := [][]string{{"name", console.Readable([]byte(i.Name))}}
	add := func(label, text string) {
		if text != "" {
			rows = append(rows, []string{label, text})
		}
	}
	if i.Held {
		add("holder", i.Holder.ID)
		add("host", i.Holder.Card.Host)
		if i.Holder.Card.PID != 0 {
			add("pid", strconv.Itoa(i.Holder.Card.PID))
		}
		add("started", moment(i.Holder.Card.Started))
		add("card", i.Holder.Card.Text)
		add("token", strconv.FormatUint(uint64(i.Token), 10))
		add("ttl", i.TTL.String())
		add("remaining", roughly(i.Remaining))
	} else {
		add("holder", nobody)
		if i.Token != 0 {
			add("last token", strconv.FormatUint(uint64(i.Token), 10))
		}
	}
	add("waiting", waiting(i))
	add("pinned", i.Pinned)
	return rows
}

// moment formats a wall-clock time; the zero time as nothing.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func newHistory() *cobra.Command {
	var flags store.Flags
	limit := 0
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show the previous holders of a name",
		Long: `Show the last holders of a name, newest first: from when to when each held it, and why its tenure ended. Times are
from the store's wall clock. The store keeps a limited number of tenures.`,
		Example: "  leasekeeper history jobs/nightly",
		Args:    store.OneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return command.WrongUsage("--limit %d is not positive: write the largest number of tenures to show, such as 10", limit)
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				historian, err := backend.Can[backend.Historian](b)
				if err != nil {
					return store.Explain("read the history", err)
				}
				past, err := historian.History(ctx, args[0], limit)
				if err != nil {
					return store.Explain("read the history", err)
				}
				return printHistory(cmd, past, flags.Output)
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().IntVar(&limit, "limit", 20, "the largest `number` of tenures to show")
	return cmd
}

func printHistory(cmd *cobra.Command, past []backend.Tenure, output string) error {
	all, rows := []namejson.Tenure{}, [][]string{{"TOKEN", "HOLDER", "FROM", "TO", "WHY"}}
	for _, t := range past {
		all = append(all, namejson.OfTenure(t))
		why := string(t.Why)
		if t.Note != "" {
			why += ": " + t.Note
		}
		rows = append(rows, []string{strconv.FormatUint(uint64(t.Token), 10), t.Holder.String(), moment(t.From), moment(t.To), why})
	}
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), all)
	}
	return console.PrintTable(cmd.OutOrStdout(), rows, console.Shorten(1, 4), console.Paint(tenureTone))
}

// roughly formats a rounded duration; a negative one as unknown.
func roughly(d time.Duration) string {
	if d < 0 {
		return "unknown"
	}
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
