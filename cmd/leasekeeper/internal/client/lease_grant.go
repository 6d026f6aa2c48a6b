package client

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newLeaseGrant() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "grant SECONDS",
		Short: "Grant a lease and print its id",
		Long: `Grant a lease and print its id. The lease ends after SECONDS unless a client renews it. With exit code 3 the
lease may or may not have been granted.`,
		Example: "  leasekeeper lease grant 60",
		Args:    command.Exactly(1, "the lease's time to live in seconds"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ttl, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || ttl <= 0 {
				return command.WrongUsage("%q is not a TTL: write whole seconds, such as 60", args[0])
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				answer, err := c.leases().LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl})
				if err != nil {
					return c.explain("grant a lease", err)
				}
				info := leaseInfo{ID: formatID(answer.ID), TTLSeconds: answer.TTL, RemainingSeconds: answer.TTL, Keys: []string{}}
				if flags.output == console.JSON {
					return console.PrintJSON(cmd.OutOrStdout(), info)
				}
				return console.PrintLine(cmd.OutOrStdout(), "lease %s granted for %s", info.ID, seconds(info.TTLSeconds))
			})
		},
	}
	flags.register(cmd)
	return cmd
}
