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
		Short: "Found a cluster although some members are missing",
		Long: `Found a cluster although some members are missing. A new cluster founds itself as soon as all its members are
running. If a member will never run, this command makes the server found the cluster with the members that are
running. They must be a majority.

The server refuses if one of the running members has data, or knows of a cluster that exists. A missing member can
join later if its data directory is empty.

Make sure that no missing member has data: that data will not be part of the new cluster.`,
		Example: `  leasekeeper found --endpoint 10.0.0.7:2379`,
		Args:    command.Between(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				if _, err := leasekeeperv1.NewMembersClient(c.conn).Found(ctx, &leasekeeperv1.FoundRequest{}); err != nil {
					return c.explain("found the cluster", err)
				}
				return console.PrintLine(cmd.OutOrStdout(), "the cluster was founded")
			})
		},
	}
	flags.register(cmd)
	return cmd
}
