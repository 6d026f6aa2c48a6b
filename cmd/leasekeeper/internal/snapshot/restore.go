package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/node"
)

func newRestore() *cobra.Command {
	var r restoring
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT",
		Short: "Create a data directory from a snapshot",
		Long: `Create a data directory from a snapshot of a server. Stop the servers that had the data before.

The directory belongs to the only member of a new cluster. Its first revision is the present second since 1970 times
2^20, so fencing tokens never repeat, however often a snapshot is restored; earlier revisions are compacted. Each lease
has its full TTL again. For a time (--hold-off) after the first start, the server grants no name and ends no lease:
until then a holder that the snapshot does not know may still act.`,
		Example: `  leasekeeper restore leases.snapshot --data-dir /var/lib/leasekeeper`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return command.WrongUsage("`%s` takes one snapshot file; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := r.options()
			if err != nil {
				return err
			}
			snapshot, err := openSnapshot(cmd, args[0])
			if err != nil {
				return err
			}
			restored, err := node.Restore(cmd.Context(), vfs.Default, snapshot, r.dir, o)
			snapshot.Close() // it was only read
			if err != nil {
				return err
			}
			return r.report(cmd, o.Now, "restored "+args[0], restored)
		},
	}
	r.register(cmd.Flags())
	return cmd
}

// restoring holds the flags of the commands that make the data of a new cluster from other data.
type restoring struct {
	dir           string
	revisionAbove int64
	holdOff       string
	disableAccess bool
}

// longestTTL is the value of --hold-off that stands for the largest TTL in the data.
const longestTTL = "auto"

func (r *restoring) register(flags *pflag.FlagSet) {
	flags.StringVar(&r.dir, "data-dir", "", "the `directory` to create; it must be empty or not exist")
	flags.Int64Var(&r.revisionAbove, "revision-above", 0, "a `revision` that no earlier cluster with this data has exceeded; required if the clock leads to one that may have been issued")
	flags.StringVar(&r.holdOff, "hold-off", longestTTL, "for how `long` after its first start the server grants no name and ends no lease; auto: the largest TTL in the data")
	flags.BoolVar(&r.disableAccess, "disable-access", false, "leave access disabled, for a lost password of root; users, roles and the audit log stay")
}

// options returns the options of a restore that begins now.
func (r *restoring) options() (node.RestoreOptions, error) {
	o := node.RestoreOptions{Now: time.Now(), RevisionAbove: r.revisionAbove, HoldOff: -1, DisableAccess: r.disableAccess}
	switch {
	case r.dir == "":
		return o, command.WrongUsage("no data directory is given: write --data-dir DIRECTORY")
	case r.revisionAbove < 0:
		return o, command.WrongUsage("--revision-above is %d, which is no revision: revisions are positive", r.revisionAbove)
	case r.holdOff == longestTTL:
		return o, nil
	}
	holdOff, err := time.ParseDuration(r.holdOff)
	if err != nil || holdOff < 0 {
		return o, command.WrongUsage("--hold-off is %q, neither auto nor a duration such as 30s", r.holdOff)
	}
	o.HoldOff = holdOff
	return o, nil
}

// report says what was made. It waits until the second at which the command began is over, so that a later command does
// not begin at the same one: a cluster's revisions begin at the second at which it was made.
func (r *restoring) report(cmd *cobra.Command, began time.Time, what string, restored node.Restored) error {
	if err := waitForSecondAfter(cmd.Context(), began); err != nil {
		return err
	}
	text := fmt.Sprintf("%s to %s\ncluster %016x, member %016x\nrevision %d (%d in the data)\n",
		what, r.dir, restored.ClusterID, restored.MemberID, restored.Revision, restored.Was)
	if restored.HoldOff > 0 {
		text += fmt.Sprintf("no name is granted, and no lease ends, for %v after the first start\n", restored.HoldOff)
	}
	switch {
	case restored.AccessDisabled:
		text += "access is not enabled: every client may do everything, until you set the password of root and enable access\n"
	case r.disableAccess:
		text += "access was not enabled in the data\n"
	}
	return console.PrintLines(cmd.OutOrStdout(), text)
}

// waitForSecondAfter waits until the clock shows a later second. It waits two seconds at most: a clock that was set back
// meanwhile does not hold it up.
func waitForSecondAfter(ctx context.Context, began time.Time) error {
	for range 20 {
		if time.Now().Unix() > began.Unix() {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
