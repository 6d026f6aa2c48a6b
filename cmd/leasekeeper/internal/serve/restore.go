package serve

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/node"
)

func newRestore() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT",
		Short: "Create a data directory from a snapshot",
		Long: `Create a data directory from a snapshot, which "etcdctl snapshot save" takes from a running server.

The directory belongs to a new cluster. Its revisions continue far above those of the snapshot, so that fencing tokens
never repeat; the revisions in between are compacted. Each lease gets the time that it had left in the snapshot,
counted from the start of the server.`,
		Example: `  etcdctl snapshot save leases.snapshot
  leasekeeper restore leases.snapshot --data-dir /var/lib/leasekeeper`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return command.WrongUsage("`%s` takes one snapshot file; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
			}
			if dir == "" {
				return command.WrongUsage("no data directory is given: write --data-dir DIRECTORY")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			snapshot, err := os.Open(args[0])
			if err != nil {
				return command.Failed("cannot read the snapshot: %w", err)
			}
			defer snapshot.Close()
			restored, err := node.Restore(cmd.Context(), vfs.Default, snapshot, dir)
			if err != nil {
				return err
			}
			return console.PrintLines(cmd.OutOrStdout(), fmt.Sprintf("restored %s to %s\ncluster %016x, member %016x\nrevision %d (%d in the snapshot)\n",
				args[0], dir, restored.ClusterID, restored.MemberID, restored.Revision, restored.Was))
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "the `directory` to create; it must be empty or not exist")
	return cmd
}
