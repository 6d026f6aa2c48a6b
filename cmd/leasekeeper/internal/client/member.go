package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

func newMember() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "member",
		Short:   "List, add, promote, update and remove members of a cluster",
		Example: "  leasekeeper member list",
		Args:    command.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMemberList(), newMemberAdd(), newMemberPromote(), newMemberUpdate(), newMemberRemove())
	return cmd
}

// memberInfo describes a member in the output of the commands.
type memberInfo struct {
	ID         string   `json:"id"` // hexadecimal
	Name       string   `json:"name"`
	Started    bool     `json:"started"` // the member has started and has said its name
	Learner    bool     `json:"learner"`
	PeerURLs   []string `json:"peer_urls"`
	ClientURLs []string `json:"client_urls"`
}

func newMemberInfo(m *pb.Member) memberInfo {
	return memberInfo{
		ID: memberID(m.ID), Name: m.Name, Started: m.Name != "", Learner: m.IsLearner,
		PeerURLs: append([]string{}, m.PeerURLs...), ClientURLs: append([]string{}, m.ClientURLs...),
	}
}

func newMemberList() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the members of a cluster",
		Long: `List the members of a cluster in order of their ids. A learner follows the leader and has no vote. A member that
was added and has never started has no name.

` + "`leasekeeper status`" + ` shows how the members are.`,
		Example: `  leasekeeper member list
  leasekeeper member list --endpoint 10.0.0.7:2379 -o json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd, &flags, func(ctx context.Context, c *client) error {
				members, err := c.listMembers(ctx)
				if err != nil {
					return c.explain("list the members", err)
				}
				return printMemberList(cmd, flags.output, members)
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func printMemberList(cmd *cobra.Command, output string, members []*pb.Member) error {
	infos := make([]memberInfo, len(members))
	for i, m := range members {
		infos[i] = newMemberInfo(m)
	}
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), infos)
	}
	rows := [][]string{{"ID", "NAME", "STARTED", "ROLE", "PEERS", "CLIENTS"}}
	for _, m := range infos {
		name, kind := m.Name, "voter"
		if name == "" {
			name = "-"
		}
		if m.Learner {
			kind = "learner"
		}
		rows = append(rows, []string{m.ID, name, yesOrNo(m.Started), kind, urlsInWords(m.PeerURLs), urlsInWords(m.ClientURLs)})
	}
	return console.PrintTable(cmd.OutOrStdout(), rows, console.Shorten(4, 5))
}

func urlsInWords(urls []string) string {
	if len(urls) == 0 {
		return "-"
	}
	return strings.Join(urls, ",")
}

// listMembers returns the members with every change that was acknowledged before.
func (c *client) listMembers(ctx context.Context) ([]*pb.Member, error) {
	answer, err := pb.NewClusterClient(c.conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	return answer.GetMembers(), err
}

// chooseMember returns the member with this name or id. A name that two members have chooses none.
func chooseMember(members []*pb.Member, given string) (*pb.Member, error) {
	id, err := strconv.ParseUint(strings.TrimPrefix(given, "0x"), 16, 64)
	isID := err == nil
	var found []*pb.Member
	var known []string
	for _, m := range members {
		if m.Name == given && given != "" || isID && m.ID == id {
			found = append(found, m)
		}
		known = append(known, nameAndID(m))
	}
	switch len(found) {
	case 0:
		hint := ""
		if slices.ContainsFunc(members, unnamed) {
			hint = "; a member has a name once it has started"
		}
		return nil, command.WrongUsage("the cluster has no member %s: write the name or the id of one of %s%s", given, strings.Join(known, ", "), hint)
	case 1:
		return found[0], nil
	}
	return nil, command.WrongUsage("%s is the name or the id of more than one member: write the id of one of %s", given, strings.Join(known, ", "))
}

// unnamed reports whether the list has no name of a member yet, because it has not started.
func unnamed(m *pb.Member) bool { return m.Name == "" }

// nameAndID returns how messages name a member.
func nameAndID(m *pb.Member) string {
	if m.Name == "" {
		return memberID(m.ID)
	}
	return fmt.Sprintf("%s (%s)", m.Name, memberID(m.ID))
}

// memberRefusals says for each refusal of a change of the members what to do.
var memberRefusals = map[error]string{
	rpctypes.ErrMemberNotFound:         "the cluster has no such member; `leasekeeper member list` shows its members",
	rpctypes.ErrMemberExist:            "the server has drawn an id that is in use: try again",
	rpctypes.ErrPeerURLExist:           "a member has this address already; `leasekeeper member list` shows which",
	rpctypes.ErrMemberBadURLs:          "the address is not a URL of a port for members: write http:// or https:// and host:port",
	rpctypes.ErrMemberNotEnoughStarted: "too few of the members that vote afterwards have ever started: start the members that were added, or add another one first",
	rpctypes.ErrMemberNotLearner:       "the member has a vote already",
	rpctypes.ErrMemberLearnerNotReady:  "the learner has not started, or has not caught up with the leader: wait, for example with --wait 1m",
	rpctypes.ErrTooManyLearners:        "the cluster has a learner already: promote or remove that first",
	rpctypes.ErrUnhealthy:              "too few members are up for that; `leasekeeper status` shows which are: start them, or remove those that are lost first",
}

// changingText is in the refusal of a change while another one is under way. That refusal has the code Unavailable, as it is
// over soon, but its outcome is known: nothing was changed.
var changingText, _, _ = strings.Cut(roster.ErrChanging.Error(), ":")

// explainChange is explain for a change of the members. All refusals have [command.ExitFailed].
func (c *client) explainChange(doing string, err error) error {
	if strings.Contains(status.Convert(err).Message(), changingText) {
		return command.Failed("could not %s: %s, perhaps one that the leader makes by itself; nothing was changed: try again in a moment", doing, changingText)
	}
	if advice := memberRefusals[rpctypes.Error(err)]; advice != "" {
		return command.Failed("could not %s: %s", doing, advice)
	}
	return c.explain(doing, err)
}
