package client

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newFound() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "found",
		Short: "Found a cluster without members that are missing",
		Long: `Found a cluster without members that are missing. A new cluster is founded by itself as soon as all its members
are there. If one of them never will be, this command orders the member that is asked to found the cluster with the
others that are there. A majority must be. The order is refused if any of them has data, or knows that there was a
cluster. A member that is missing joins later, if its data folder is empty.

Make sure that no missing member has data: what it has is not part of the new cluster.`,
		Example: `  leasekeeper found --endpoint 10.0.0.7:2379`,
		Args:    command.Between(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				if _, err := leasekeeperv1.NewMembersClient(c.conn).Found(ctx, &leasekeeperv1.FoundRequest{}); err != nil {
					return c.explain("found the cluster", err)
				}
				return console.PrintLine(cmd.OutOrStdout(), "the cluster is founded")
			})
		},
	}
	flags.register(cmd)
	return cmd
}
