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
		Short: "Make a data folder from a snapshot",
		Long: `Make a data folder from a snapshot, which "etcdctl snapshot save" gets from a running server. The folder
is that of a new cluster. Its revisions go on far above those of the snapshot, so that fencing tokens never
repeat; the ones between are compacted. What leases had left is counted anew from when a server is started.`,
		Example: `  etcdctl snapshot save leases.snapshot
  leasekeeper restore leases.snapshot --data-dir /var/lib/leasekeeper`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return command.WrongUsage("`%s` takes one snapshot; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
			}
			if dir == "" {
				return command.WrongUsage("say with --data-dir where to restore to")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			snapshot, err := os.Open(args[0])
			if err != nil {
				return command.Failed("the snapshot cannot be read: %w", err)
			}
			defer snapshot.Close()
			restored, err := node.Restore(cmd.Context(), vfs.Default, snapshot, dir)
			if err != nil {
				return err
			}
			return console.PrintLines(cmd.OutOrStdout(), fmt.Sprintf("restored %s to %s\ncluster %016x, member %016x\nrevision %d, of the snapshot %d\n",
				args[0], dir, restored.ClusterID, restored.MemberID, restored.Revision, restored.Was))
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "the `folder` to make; it must be empty or not exist")
	return cmd
}
