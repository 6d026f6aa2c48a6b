package client

import (
	"context"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// listParallel is the number of requests about single leases that `lease list` has in progress at a time.
const listParallel = 32

func newLeaseList() *cobra.Command {
	var flags clientFlags
	var quiet bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the leases of a server",
		Long: `List the leases of a server, in the server's order. The command sends one request for each lease; with --quiet it
sends a single request, which is faster for many leases.`,
		Example: `  leasekeeper lease list
  leasekeeper lease revoke $(leasekeeper lease list --quiet)`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				answer, err := c.leases().LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
				if err != nil {
					return c.explain("list the leases", err)
				}
				if quiet {
					return printIDs(cmd, flags.output, answer.Leases)
				}
				infos, err := c.readLeases(ctx, answer.Leases)
				if err != nil {
					return c.explain("read the leases", err)
				}
				return printLeases(cmd, flags.output, infos)
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only the ids")
	flags.register(cmd)
	return cmd
}

// readLeases asks the server for all these leases. It omits leases that have ended meanwhile.
func (c *client) readLeases(ctx context.Context, leases []*pb.LeaseStatus) ([]*leaseInfo, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := make([]*leaseInfo, len(leases))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(listParallel, len(leases)) {
		workers.Go(func() {
			for i := range next {
				info, err := c.readLease(ctx, leases[i].ID)
				if err != nil {
					cancel(err)
				}
				all[i] = info
			}
		})
	}
	for i := range leases {
		next <- i
	}
	close(next)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	found := all[:0]
	for _, info := range all {
		if info != nil {
			found = append(found, info)
		}
	}
	return found, nil
}

func printIDs(cmd *cobra.Command, output string, leases []*pb.LeaseStatus) error {
	ids := make([]string, 0, len(leases))
	for _, l := range leases {
		ids = append(ids, formatID(l.ID))
	}
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), ids)
	}
	for _, id := range ids {
		if err := console.PrintLine(cmd.OutOrStdout(), "%s", id); err != nil {
			return err
		}
	}
	return nil
}

func printLeases(cmd *cobra.Command, output string, infos []*leaseInfo) error {
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), infos)
	}
	rows := [][]string{{"ID", "TTL", "REMAINING", "KEYS"}}
	for _, info := range infos {
		rows = append(rows, []string{info.ID, seconds(info.TTLSeconds), seconds(info.RemainingSeconds), strconv.Itoa(len(info.Keys))})
	}
	return console.PrintTable(cmd.OutOrStdout(), rows)
}
