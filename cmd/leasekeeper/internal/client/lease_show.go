package client

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newLeaseShow() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one lease and the keys attached to it",
		Example: "  leasekeeper lease show 694d9a1b2c3d4e5f",
		Args:    command.Exactly(1, "one lease id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				info, err := c.readLease(ctx, id)
				if err != nil {
					return c.explain("read the lease", err)
				}
				if info == nil {
					return command.Failed("there is no lease %s: it has ended or never existed; `leasekeeper lease list` shows the leases", formatID(id))
				}
				return info.print(cmd, flags.output)
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func (info *leaseInfo) print(cmd *cobra.Command, output string) error {
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), info)
	}
	rows := [][]string{
		{"id", info.ID},
		{"ttl", seconds(info.TTLSeconds)},
		{"remaining", seconds(info.RemainingSeconds)},
	}
	for i, key := range info.Keys {
		label := ""
		if i == 0 {
			label = "keys"
		}
		rows = append(rows, []string{label, key})
	}
	if len(info.Keys) == 0 {
		rows = append(rows, []string{"keys", "none"})
	}
	return console.PrintTable(cmd.OutOrStdout(), rows)
}
