package snapshot

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/etcdfile"
	"github.com/leasekeeper/leasekeeper/internal/node"
)

func newImport() *cobra.Command {
	var (
		r    restoring
		from string
	)
	cmd := &cobra.Command{
		Use:   "import --from-etcd FILE",
		Short: "Create a data directory from a snapshot of etcd",
		Long: `Create a data directory from a snapshot of etcd (etcdctl snapshot save), or from the file member/snap/db of the data
directory of a stopped etcd. Stop the servers that had the data before.

Keys keep their values, versions and leases, and the revisions of their creation and their last change. Their history is
not imported. Leases keep their ids, and have their full TTL again. Users and roles are imported, and access is enabled if
authentication is enabled in the file, unless --disable-access is given. No user has a quota.

The directory belongs to the only member of a new cluster, as after restore: tokens never repeat, and for a time
(--hold-off) after the first start, the server grants no name and ends no lease.`,
		Example: `  leasekeeper import --from-etcd etcd.snapshot --data-dir /var/lib/leasekeeper`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return command.WrongUsage("no file is given: write --from-etcd FILE")
			}
			o, err := r.options()
			if err != nil {
				return err
			}
			shown := console.NewProgress(cmd.ErrOrStderr())
			o.ImportProgress = importProgress(shown)
			restored, found, err := node.Import(cmd.Context(), vfs.Default, from, r.dir, o)
			shown.Clear()
			if err != nil {
				return command.Failed("could not import %s: %w", from, err)
			}
			if err := r.report(cmd, o.Now, "imported "+from, restored); err != nil {
				return err
			}
			return printImported(cmd, found, restored.AccessDisabled)
		},
	}
	cmd.Flags().StringVar(&from, "from-etcd", "", "the `file`: a snapshot of etcd, or member/snap/db of its data directory")
	r.register(cmd.Flags())
	return cmd
}

// printImported prints what was found in the file, and whether access was disabled.
func printImported(cmd *cobra.Command, found etcdfile.Imported, disabled bool) error {
	text := console.Plural(found.Keys, "key", "keys") + ", " + console.Plural(found.Leases, "lease", "leases") + "\n"
	if found.Unbound > 0 {
		text += fmt.Sprintf("%s a lease that etcd does not have, and no lease now\n", console.Plural(found.Unbound, "key had", "keys had"))
	}
	if found.Users+found.Roles > 0 || found.Access {
		state := "access is not enabled, as authentication was not in etcd"
		switch {
		case found.Access && disabled:
			state = "authentication was enabled in etcd"
		case found.Access:
			state = "access is enabled, as authentication was in etcd"
		}
		text += fmt.Sprintf("%s, %s; %s\n", console.Plural(found.Users, "user", "users"), console.Plural(found.Roles, "role", "roles"), state)
	}
	if !found.Checked {
		text += "the file has no checksum, because it is not a snapshot: it lacks what etcd had only in its write-ahead log\n"
	}
	return console.PrintLines(cmd.OutOrStdout(), text)
}
