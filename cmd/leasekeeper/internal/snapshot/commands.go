package snapshot

import (
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/client"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newSnapshot(), newRestore(), newRecover(), newImport()}
}

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save, inspect and restore snapshots of a server",
		Args:  command.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(client.NewSnapshotSave(), newInspect(), newRestore())
	return cmd
}
