package snapshot

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

func newRecover() *cobra.Command {
	var (
		r                     restoring
		acceptLoss, othersOff bool
	)
	cmd := &cobra.Command{
		Use:   "recover DIRECTORY",
		Short: "Make a new cluster of one member that survived the loss of a majority",
		Long: `Make a new cluster of one member that survived the loss of a majority. DIRECTORY is its data directory. Its server
must be stopped. The command does not change it: the new cluster gets a directory of its own (--data-dir).

Without --accept-loss and --others-stopped the command only shows what the member has, and what may be lost. If more
than one member survived, run it for each, and recover the one with the last log entry of the greatest term, and of
those the greatest number.

The result is what restore makes from a snapshot of the member.`,
		Example: `  leasekeeper recover /var/lib/leasekeeper --data-dir /var/lib/leasekeeper-new
  leasekeeper recover /var/lib/leasekeeper --data-dir /var/lib/leasekeeper-new --accept-loss --others-stopped`,
		Args: command.Exactly(1, "the data directory of the member that survived"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := r.options()
			if err != nil {
				return err
			}
			shown := console.NewProgress(cmd.ErrOrStderr())
			o.CopyProgress = copyProgress(shown)
			restored, found, err := node.Rebuild(cmd.Context(), vfs.Default, args[0], r.dir, acceptLoss && othersOff, o)
			shown.Clear()
			if err != nil && !errors.Is(err, node.ErrLossNotAccepted) {
				return err
			}
			if printed := printSurvivor(cmd, args[0], found); printed != nil {
				return printed
			}
			if err != nil {
				return command.Failed("nothing was made: stop all other members for good and say so with --others-stopped, and accept the loss with --accept-loss")
			}
			return r.report(cmd, o.Now, "recovered "+args[0], restored)
		},
	}
	r.register(cmd.Flags())
	cmd.Flags().BoolVar(&acceptLoss, "accept-loss", false, "go on without the changes that this member lacks")
	cmd.Flags().BoolVar(&othersOff, "others-stopped", false, "the other members are stopped, and will never start with their data again")
	return cmd
}

// printSurvivor prints what the member has, and what may be lost.
func printSurvivor(cmd *cobra.Command, dir string, c record.Contents) error {
	return console.PrintLines(cmd.OutOrStdout(), fmt.Sprintf(`%s has cluster %016x, member %016x
last log entry: %d of term %d
revision %d, %s, %s

What may be lost: every change after that entry, although a client may have been told that it succeeded: keys,
leases, tenures, marks. Names may have been granted that the member does not know.
What may appear: %s, which no client may have been told of.
`, dir, c.ClusterID, c.MemberID, c.LastIndex, c.LastTerm, c.Revision,
		console.Plural(c.Leases, "lease", "leases"), console.Plural(c.Names, "held name", "held names"),
		console.Plural(c.Unapplied, "entry", "entries")+" at the end of the log"))
}
