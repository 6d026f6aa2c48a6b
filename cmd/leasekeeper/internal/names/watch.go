package names

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
	"github.com/leasekeeper/leasekeeper/internal/namejson"
)

// nameEvent is one line of `watch -o json`.
type nameEvent struct {
	Event string `json:"event"` // acquired, vacated or announced; now for the present state
	Why   string `json:"why,omitempty"`
	namejson.Name
}

var eventWords = map[backend.EventKind]string{
	backend.Acquired: "acquired", backend.Vacated: "vacated", backend.Announced: "announced", backend.Resync: "now",
}

func newWatch() *cobra.Command {
	var flags store.Flags
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Print changes of names as they happen",
		Long: `Print the state of the names that begin with PREFIX, or of all names, and then one line for each change, until Ctrl-C.
A line that begins with "now" is the present state of a name, printed when changes before it may have been missed.`,
		Example: `  leasekeeper watch
  leasekeeper watch jobs/ -o json | jq .name`,
		Args: command.Between(0, 1, "one prefix"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withKeeper(cmd, &flags, func(ctx context.Context, k *leasekeeper.Keeper) error {
				return watch(ctx, cmd, k, prefixOf(args), flags.Output)
			})
		},
	}
	flags.Register(cmd)
	return cmd
}

func watch(ctx context.Context, cmd *cobra.Command, k *leasekeeper.Keeper, prefix, output string) error {
	for e, err := range k.Watch(ctx, prefix) {
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, leasekeeper.ErrUnavailable):
			console.Warn(cmd.ErrOrStderr(), "the watch was interrupted and resumes: %v", err)
			continue
		case err != nil:
			return store.Explain("watch", err)
		}
		if err := printEvent(cmd.OutOrStdout(), e, output); err != nil {
			return err
		}
	}
	return nil
}

func printEvent(w io.Writer, e backend.Event, output string) error {
	n := nameEvent{Event: eventWords[e.Kind], Why: string(e.Why), Name: namejson.OfName(e.Info)}
	if output == console.JSON {
		return console.PrintJSONLine(w, n)
	}
	line := fmt.Sprintf("%-9s  %s", n.Event, console.Readable([]byte(e.Info.Name)))
	if e.Info.Held {
		line += fmt.Sprintf("  %s  token %d", e.Info.Holder, e.Info.Token)
		if e.Info.Holder.Card.Text != "" {
			line += "  " + e.Info.Holder.Card.Text
		}
	} else if e.Kind == backend.Resync {
		line += "  held by nobody"
	}
	if e.Why != "" {
		line += "  " + string(e.Why)
	}
	return console.PrintLine(w, "%s", line)
}
