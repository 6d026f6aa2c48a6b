package client

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func newMemberPromote() *cobra.Command {
	var flags clientFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "promote MEMBER",
		Short: "Give a learner a vote",
		Long: `Give a learner a vote. MEMBER is its name or its id; it has a name once it has started. The leader refuses until
the learner has nine tenths of its log. --wait waits for both.

With exit code 3 the learner may or may not have been promoted.`,
		Example: "  leasekeeper member promote d --wait 1m",
		Args:    command.Exactly(1, "a member"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait < 0 {
				return command.WrongUsage("--wait %v is negative: write how long to wait, such as 1m", wait)
			}
			return withConnection(cmd, &flags, func(ctx context.Context, c *client) error {
				m, left, err := c.findLearner(ctx, args[0], wait)
				if err != nil {
					return err
				}
				if err := c.promote(ctx, cmd, m.ID, nameAndID(m), left); err != nil {
					return err
				}
				return printChange(cmd, flags.output, memberChange{ID: memberID(m.ID), Name: m.Name, Change: "promoted"}, "%s has a vote now", nameAndID(m))
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait until the learner has started and has caught up")
	flags.register(cmd)
	return cmd
}

func newMemberUpdate() *cobra.Command {
	var flags clientFlags
	var peers []string
	cmd := &cobra.Command{
		Use:   "update MEMBER --peer URL",
		Short: "Change where the other members reach a member",
		Long: `Change where the other members reach a member. MEMBER is its name or its id. Tell the cluster first, and then start
the member at the new address.

With exit code 3 the address may or may not have been changed.`,
		Example: "  leasekeeper member update b --peer 10.0.0.8:2380",
		Args:    command.Exactly(1, "a member"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(peers) == 0 {
				return command.WrongUsage("no address is given: write --peer and the member's new host:port for members")
			}
			if _, err := parsePeerURLs(peers, nil); err != nil {
				return err
			}
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				const doing = "update the member"
				members, err := c.listMembers(ctx)
				if err != nil {
					return c.explain(doing, err)
				}
				m, err := chooseMember(members, args[0])
				if err != nil {
					return err
				}
				urls, err := parsePeerURLs(peers, members)
				if err != nil {
					return err
				}
				if _, err = pb.NewClusterClient(c.conn).MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: m.ID, PeerURLs: urls}); err != nil {
					return c.explainChange(doing, err)
				}
				return printChange(cmd, flags.output, memberChange{ID: memberID(m.ID), Name: m.Name, Change: "updated"},
					"the members now reach %s at %s", nameAndID(m), strings.Join(urls, ","))
			})
		},
	}
	cmd.Flags().StringSliceVar(&peers, "peer", nil, "the `URL` or host:port at which other members reach it; several are separated by commas")
	flags.register(cmd)
	return cmd
}

func newMemberRemove() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Remove a member from a cluster for good",
		Long: `Remove a member from a cluster for good. MEMBER is its name or its id. The server of a removed member refuses
new requests, lets open ones finish for up to 10 seconds, and ends. It never starts again on its data directory. Add it
again to bring it back with an empty one.

The leader refuses if the members that are left could not go on: remove those that are lost first.
With exit code 3 the member may or may not have been removed.`,
		Example: "  leasekeeper member remove b",
		Args:    command.Exactly(1, "a member"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				const doing = "remove the member"
				m, err := c.findForChange(ctx, doing, args[0])
				if err != nil {
					return err
				}
				if _, err = pb.NewClusterClient(c.conn).MemberRemove(ctx, &pb.MemberRemoveRequest{ID: m.ID}); err != nil {
					return c.explainChange(doing, err)
				}
				return printChange(cmd, flags.output, memberChange{ID: memberID(m.ID), Name: m.Name, Change: "removed"}, "%s was removed", nameAndID(m))
			})
		},
	}
	flags.register(cmd)
	return cmd
}

// findLearner returns the member with this name or id. The list has no name of a member that has not started. While there
// is such a member, findLearner looks for the name again, for at most wait. left is what it leaves of wait.
func (c *client) findLearner(ctx context.Context, given string, wait time.Duration) (m *pb.Member, left time.Duration, err error) {
	const doing = "promote the member"
	for left = wait; ; left -= promoteInterval {
		members, err := c.listForChange(ctx, doing)
		if err != nil {
			return nil, left, err
		}
		m, err := chooseMember(members, given)
		if err == nil || !slices.ContainsFunc(members, unnamed) || left < promoteInterval {
			return m, left, err
		}
		if err := c.pause(ctx, doing); err != nil {
			return nil, left, err
		}
	}
}

// findForChange returns the member with this name or id, as the server lists it.
func (c *client) findForChange(ctx context.Context, doing, given string) (*pb.Member, error) {
	members, err := c.listForChange(ctx, doing)
	if err != nil {
		return nil, err
	}
	return chooseMember(members, given)
}

func (c *client) listForChange(ctx context.Context, doing string) ([]*pb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	members, err := c.listMembers(ctx)
	if err != nil {
		return nil, c.explain(doing, err)
	}
	return members, nil
}

// memberChange is what the commands that change a member print with -o json.
type memberChange struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Change string `json:"change"` // "promoted", "updated" or "removed"
}

func printChange(cmd *cobra.Command, output string, change memberChange, format string, args ...any) error {
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), change)
	}
	return console.PrintLine(cmd.OutOrStdout(), format, args...)
}

// parsePeerURLs reads the addresses of a member's port for members. An address without a scheme gets that of the other
// members, because all members of a cluster speak TLS with each other or none does.
func parsePeerURLs(given []string, members []*pb.Member) ([]string, error) {
	scheme := "http://"
	for _, m := range members {
		if len(m.PeerURLs) > 0 && strings.HasPrefix(m.PeerURLs[0], "https://") {
			scheme = "https://"
		}
	}
	urls := make([]string, len(given))
	for i, text := range given {
		if text = strings.TrimSpace(text); !strings.Contains(text, "://") {
			text = scheme + text
		}
		u, err := url.Parse(text)
		if err == nil {
			_, _, err = net.SplitHostPort(u.Host)
		}
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != text {
			return nil, command.WrongUsage("--peer %q is not the address of a port for members: write host:port, such as 10.0.0.8:2380", given[i])
		}
		urls[i] = text
	}
	return urls, nil
}
