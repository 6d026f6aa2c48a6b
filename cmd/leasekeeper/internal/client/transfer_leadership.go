package client

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newTransferLeadership() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "transfer-leadership [MEMBER]",
		Short: "Hand leadership of a cluster to another member",
		Long: `Hand leadership of a cluster to another member. MEMBER is its name or its id; by default the leader picks the member
whose log is most complete. --endpoint may name any member.

The command returns when the other member leads. If that fails, the present leader keeps leading. Only
clients that wait for a name notice: they repeat their request.`,
		Example: `  leasekeeper transfer-leadership
  leasekeeper transfer-leadership b --endpoint 10.0.0.7:2379`,
		Args: command.Between(0, 1, "a member"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				return c.transferLeadership(ctx, cmd, args)
			})
		},
	}
	flags.register(cmd)
	return cmd
}

// transferInfo is what `transfer-leadership -o json` prints.
type transferInfo struct {
	Leader   string `json:"leader"`
	LeaderID string `json:"leader_id"`
	Former   string `json:"former"`
	FormerID string `json:"former_id"`
}

func (c *client) transferLeadership(ctx context.Context, cmd *cobra.Command, args []string) error {
	const doing = "transfer leadership"
	members := leasekeeperv1.NewMembersClient(c.conn)
	list, err := members.List(ctx, &leasekeeperv1.ListMembersRequest{})
	if err != nil {
		return c.explain(doing, err)
	}
	names := make(map[uint64]string)
	for _, m := range list.Members {
		names[m.Id] = m.Name
	}
	request := new(leasekeeperv1.TransferLeadershipRequest)
	if len(args) == 1 {
		if request.To, err = findMember(list.Members, args[0]); err != nil {
			return err
		}
	}
	moved, err := members.TransferLeadership(ctx, request)
	if err != nil {
		return c.explain(doing, err)
	}
	if c.flags.output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), transferInfo{
			Leader: names[moved.Leader], LeaderID: memberID(moved.Leader), Former: names[moved.Former], FormerID: memberID(moved.Former),
		})
	}
	if moved.Leader == moved.Former {
		return console.PrintLine(cmd.OutOrStdout(), "%s is already the leader", names[moved.Leader])
	}
	return console.PrintLine(cmd.OutOrStdout(), "%s is now the leader; it replaced %s", names[moved.Leader], names[moved.Former])
}

// findMember returns the id of the member with this name or id.
func findMember(members []*leasekeeperv1.Member, given string) (uint64, error) {
	var names []string
	for _, m := range members {
		if m.Name == given {
			return m.Id, nil
		}
		names = append(names, m.Name)
	}
	if id, err := strconv.ParseUint(given, 16, 64); err == nil {
		for _, m := range members {
			if m.Id == id {
				return id, nil
			}
		}
	}
	return 0, command.WrongUsage("the cluster has no member %s: write one of %s", given, strings.Join(names, ", "))
}
