package client

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

const (
	// promoteInterval is the time between two requests to promote a learner, or to find it.
	promoteInterval = 500 * time.Millisecond
	// defaultPromoteWait is how long `member add` waits for the new member.
	defaultPromoteWait = 10 * time.Minute
)

// adding is one run of `member add`.
type adding struct {
	flags   clientFlags
	name    string
	peers   []string
	learner bool
	wait    time.Duration
}

func newMemberAdd() *cobra.Command {
	var a adding
	cmd := &cobra.Command{
		Use:   "add NAME --peer URL",
		Short: "Add a member to a cluster",
		Long: `Add a member to a cluster. --peer is where the other members will reach it. The command prints the command with which
to start the new member, with an empty data directory.

The member joins as a learner, which has no vote, so that the others do not wait for it. The command waits until the
learner has started and has caught up with the leader, and gives it a vote. If the command ends before that, the
member stays a learner: ` + "`leasekeeper member promote`" + ` gives it a vote later. --learner does not wait.

With -o json the command prints one object a line: one with "change": "added" and the command to start as soon as the
member was added, and one with "change": "promoted" when it has a vote. With --learner there is no second line.

With exit code 3 the member may or may not have been added, or promoted: see ` + "`leasekeeper member list`" + `.`,
		Example: `  leasekeeper member add d --peer 10.0.0.8:2380
  leasekeeper member add d --peer 10.0.0.8:2380 --learner`,
		Args: command.Exactly(1, "the new member's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.name = args[0]
			switch {
			case a.name == "" || strings.ContainsAny(a.name, "=, \t\n"):
				return command.WrongUsage("%q is not a name for a member: write letters and digits, such as d", a.name)
			case len(a.peers) == 0:
				return command.WrongUsage("no address is given: write --peer and the new member's host:port for members")
			case a.wait <= 0:
				return command.WrongUsage("--wait %v is not positive: write how long to wait, such as 10m, or --learner", a.wait)
			}
			if _, err := parsePeerURLs(a.peers, nil); err != nil {
				return err
			}
			return withConnection(cmd, &a.flags, func(ctx context.Context, c *client) error { return a.run(ctx, cmd, c) })
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&a.peers, "peer", nil, "the `URL` or host:port at which other members will reach it; several are separated by commas")
	flags.BoolVar(&a.learner, "learner", false, "only add the member, as a learner")
	flags.DurationVar(&a.wait, "wait", defaultPromoteWait, "how long to wait until the member has started and has caught up")
	a.flags.register(cmd)
	return cmd
}

// addedInfo is one line of `member add -o json`.
type addedInfo struct {
	memberInfo
	Change string   `json:"change"` // "added", or "promoted" once the member has a vote
	Start  []string `json:"start"`  // the command that starts the member
}

func (a *adding) run(ctx context.Context, cmd *cobra.Command, c *client) error {
	added, before, err := a.add(ctx, c)
	if err != nil {
		return err
	}
	info := addedInfo{memberInfo: newMemberInfo(added), Change: "added", Start: a.startCommand(added, before)}
	info.Name = a.name
	if err := a.tell(cmd, c.flags.output, info); err != nil || a.learner {
		return err
	}
	if err := c.promote(ctx, cmd, added.ID, a.name, a.wait); err != nil {
		return err
	}
	info.Change, info.Started, info.Learner = "promoted", true, false
	return a.tell(cmd, c.flags.output, info)
}

// add adds the member as a learner. It returns the members from before too.
func (a *adding) add(ctx context.Context, c *client) (added *pb.Member, before []*pb.Member, err error) {
	const doing = "add the member"
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	if before, err = c.listMembers(ctx); err != nil {
		return nil, nil, c.explain(doing, err)
	}
	for _, m := range before {
		if m.Name == a.name {
			return nil, nil, command.Failed("could not %s: the cluster has the member %s already: choose another name, or remove that one first", doing, nameAndID(m))
		}
	}
	urls, err := parsePeerURLs(a.peers, before)
	if err != nil {
		return nil, nil, err
	}
	answer, err := pb.NewClusterClient(c.conn).MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: urls, IsLearner: true})
	if err != nil {
		return nil, nil, c.explainChange(doing, err)
	}
	return answer.Member, before, nil
}

// tell prints what has changed, and after the addition how to go on. A program that reads the JSON starts the member by
// the first line, so that line does not wait for the second.
func (a *adding) tell(cmd *cobra.Command, output string, info addedInfo) error {
	w := cmd.OutOrStdout()
	switch {
	case output == console.JSON:
		return console.PrintJSONLine(w, info)
	case info.Change == "promoted":
		return console.PrintLine(w, "%s has caught up and has a vote now", a.name)
	}
	if err := console.PrintLine(w, "%s was added as a learner with the id %s. Start it with an empty data directory:", a.name, info.ID); err != nil {
		return err
	}
	if err := console.PrintLine(w, "  %s", strings.Join(info.Start, " ")); err != nil {
		return err
	}
	if a.learner {
		return console.PrintLine(w, "Then give it a vote: leasekeeper member promote %s --wait 10m", info.ID)
	}
	return console.PrintLine(w, "It gets a vote when it has caught up; this command waits for that.")
}

// startCommand returns the command with which to start the new member. The operator adds what only the machine knows, such
// as the addresses for clients.
func (a *adding) startCommand(added *pb.Member, others []*pb.Member) []string {
	var join []string
	secure := false
	for _, m := range others {
		if host, https := hostOf(m.PeerURLs); host != "" {
			join, secure = append(join, host), secure || https
		}
	}
	own, _ := hostOf(added.PeerURLs)
	start := []string{"leasekeeper", "serve", "--name", a.name, "--join", strings.Join(join, ","), "--peer-advertise", own, "--peer-listen", own}
	if secure {
		start = append(start, "--peer-cert", "FILE", "--peer-key", "FILE", "--peer-ca", "FILE")
	}
	return start
}

// hostOf returns the host and port of the first URL, "" if there is none, and whether it is for TLS.
func hostOf(urls []string) (host string, https bool) {
	if len(urls) == 0 {
		return "", false
	}
	u, err := url.Parse(urls[0])
	if err != nil {
		return "", false
	}
	return u.Host, u.Scheme == "https"
}

// promote gives a learner a vote, and repeats the request for as long as wait while the learner has not caught up. A
// request whose outcome is unknown is repeated too: the next answer shows what became of it.
func (c *client) promote(ctx context.Context, cmd *cobra.Command, id uint64, name string, wait time.Duration) error {
	const doing = "give the learner a vote"
	limit := time.Now().Add(wait)
	shown := console.NewProgress(cmd.ErrOrStderr())
	defer shown.Clear()
	for uncertain := false; ; {
		err := c.promoteOnce(ctx, id)
		known := rpctypes.Error(err)
		switch {
		case err == nil, uncertain && known == rpctypes.ErrMemberNotLearner:
			return nil
		case known == rpctypes.ErrMemberLearnerNotReady:
		case status.Code(err) == codes.Unavailable, status.Code(err) == codes.DeadlineExceeded:
			uncertain = true
		default:
			return c.explainChange(doing, err)
		}
		if time.Until(limit) < promoteInterval {
			if known == rpctypes.ErrMemberLearnerNotReady && wait > 0 {
				return command.Failed("could not %s: %s has not caught up within %v and stays a learner; see that it runs, then `leasekeeper member promote %s --wait 10m`", doing, name, wait, memberID(id))
			}
			return c.explainChange(doing, err)
		}
		shown.Show("%s", c.progressOf(ctx, id, name))
		if err := c.pause(ctx, doing); err != nil {
			return err
		}
	}
}

// pause waits until the next request of several.
func (c *client) pause(ctx context.Context, doing string) error {
	select {
	case <-time.After(promoteInterval):
		return nil
	case <-ctx.Done():
		return c.explain(doing, context.Cause(ctx))
	}
}

func (c *client) promoteOnce(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	_, err := pb.NewClusterClient(c.conn).MemberPromote(ctx, &pb.MemberPromoteRequest{ID: id})
	return err
}

// progressOf says how far a learner is, as the leader sees it.
func (c *client) progressOf(ctx context.Context, id uint64, name string) string {
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	answer, err := leasekeeperv1.NewMembersClient(c.conn).List(ctx, &leasekeeperv1.ListMembersRequest{})
	if err != nil {
		return "waiting for " + name // etcd, for example, has no such request
	}
	for _, m := range answer.Members {
		if m.Role != leasekeeperv1.Member_LEADER {
			continue
		}
		for _, p := range m.Peers {
			if p.Id == id && p.MatchIndex > 0 && m.AppliedIndex > 0 {
				return name + " is catching up: " + percent(p.MatchIndex, p.MatchIndex+p.Lag)
			}
		}
	}
	return "waiting until " + name + " starts"
}

// percent formats a part of a whole.
func percent(part, whole uint64) string {
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(max(whole, 1)))
}
