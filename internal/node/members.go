package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// Invitation says which cluster a new member joins, and as which member.
type Invitation struct {
	ClusterID, MemberID uint64
	// Members are all members of the cluster, the new one among them.
	Members []roster.Member
}

// ErrNoPeerAddress says that a server that is alone has no address at which other members could reach it.
var ErrNoPeerAddress = errors.New("this server has no address for other members: start it with --peer-advertise HOST:PORT and --peer-listen, then add members")

// errMembersWithoutAddress is the error of Start for a member of several that has no address for the others.
var errMembersWithoutAddress = errors.New("the data directory belongs to a member of a cluster, and this server has no address for other members: " +
	"start it with --peer-advertise HOST:PORT and --peer-listen")

// ChangeMembers changes the members of the cluster, and returns the new list in order of IDs. Only the leader can do this;
// others return [replica.ErrNotLeader]. The errors of a change that is refused are those of package roster. A server without
// an address for other members returns [ErrNoPeerAddress] for a change that is not refused otherwise.
func (n *Node) ChangeMembers(ctx context.Context, c roster.Change) ([]roster.Member, replica.Header, error) {
	if n.alone() {
		_, refused := roster.Founded(*n.members.Load()).Apply(c)
		return nil, replica.Header{}, cmp.Or(refused, ErrNoPeerAddress)
	}
	id := n.nextID.Add(1)
	header, members, err := typed[replica.Members](n.ask(ctx, id, replica.ChangeMembers{ID: id, Change: c, Caller: callerOf(ctx)}))
	return members, header, err
}

// Members returns the members in order of IDs, as this member has applied them. Before the first change these are the
// founders. A member that has just joined returns those that the cluster had then. The caller must not modify the list.
func (n *Node) Members(context.Context) ([]roster.Member, replica.Header, error) {
	return *n.members.Load(), n.Header(), nil
}

// Listed reports whether the cluster has a list of members, because they have changed since the founding.
func (n *Node) Listed() bool { return n.listed.Load() }

// ConnectedByList reports whether ClusterConfig.Reconfigured has received the cluster's list of members. Until then it knows
// founders, or members that another one has named, and not which of them have started.
func (n *Node) ConnectedByList() bool { return n.connected.Load() }

// Removed is closed when this member knows that it was removed from its cluster: it has applied that, or another member
// has said so. Until another member has said that the removal is on its disk, the node goes on, because the others may
// need this member's vote. Then it ends with a [replica.RemovedError]. Requests are better refused at once.
func (n *Node) Removed() <-chan struct{} { return n.removed }

func (n *Node) noteRemoval() { n.removal.Do(func() { close(n.removed) }) }

// noteMembers notes the newest list of members among the effects of a Step. The caller holds owner.
func (n *Node) noteMembers(effects []replica.Effect) {
	for _, effect := range effects {
		e, ok := effect.(replica.Reconfigured)
		if !ok {
			continue
		}
		members := []roster.Member(e.Members)
		before := idsOf(*n.members.Load())
		n.members.Store(&members)
		n.listed.Store(true)
		if ids := idsOf(members); !slices.Equal(ids, before) {
			n.log.Info("the cluster has other members", "members", ids, "before", before)
		}
		if n.replica.Removed() {
			n.noteRemoval()
		}
	}
}

// connect tells the transport which members there are. listed says that they are the cluster's list of members. The caller
// holds owner.
func (n *Node) connect(members []roster.Member, listed bool) {
	if g := n.cfg.Cluster; g != nil && g.Reconfigured != nil {
		g.Reconfigured(members)
	}
	n.connected.Store(listed)
}

func idsOf(members []roster.Member) (ids []string) {
	for _, m := range members {
		ids = append(ids, fmt.Sprintf("%x", m.ID))
	}
	return ids
}

// identify completes the configuration of the replica by what the data directory, or else the configuration, says of the
// member. In an empty data directory it makes the member join a cluster, if that is configured. It returns the members that
// another member has named; nil if there are none.
func (n *Node) identify(ctx context.Context, c *replica.Config) (contacts []roster.Member, err error) {
	g := n.cfg.Cluster
	if g == nil {
		g = new(ClusterConfig)
	}
	c.ElectionTimeout, c.MasterLease, c.ReadTimeout, c.Drift = g.ElectionTimeout, g.MasterLease, g.ReadTimeout, g.Drift
	home, founded, err := record.FindHome(n.db)
	if err != nil {
		return nil, datadir.Explain(n.cfg.Dir, err)
	}
	if !founded && g.Join != nil {
		if home, err = n.join(ctx, *c); err != nil {
			return nil, err
		}
	}
	switch {
	case founded && g.Join != nil && !home.Listed && home.Contacts == nil && len(g.Members) == 0: // with Members it may be their founder
		return nil, fmt.Errorf("the data directory %s belongs to member %x of cluster %x, which it founded, so it cannot join another cluster: "+
			"choose an empty directory to join, or omit --join to go on with this one", n.cfg.Dir, home.MemberID, home.ClusterID)
	case founded && g.Join != nil:
		n.log.Info("the data directory has a member already, so it does not join again", "member", fmt.Sprintf("%x", home.MemberID), "cluster", fmt.Sprintf("%x", home.ClusterID))
	}
	switch {
	case home.Listed || home.Contacts != nil || founded && len(g.Members) == 0:
		c.ClusterID, c.MemberID = home.ClusterID, home.MemberID
	case len(g.Members) > 0:
		c.ClusterID, c.MemberID, c.Members = g.ClusterID, g.Self, g.Members
	}
	c.Founders = slices.Clone(g.Founders)
	for i := range c.Founders {
		c.Founders[i].ID = cmp.Or(c.Founders[i].ID, c.MemberID)
	}
	list, err := roster.FromRecord(home.Contacts)
	if err != nil {
		return nil, datadir.Explain(n.cfg.Dir, &record.DamagedError{What: err.Error()})
	}
	n.listed.Store(home.Listed)
	return list.Members(), nil
}

// join makes the empty data directory that of a member which joins a cluster.
func (n *Node) join(ctx context.Context, c replica.Config) (record.Home, error) {
	invitation, err := n.cfg.Cluster.Join(ctx)
	if err != nil {
		return record.Home{}, err
	}
	contacts := roster.Founded(invitation.Members).Record()
	_, err = record.Identify(n.db, record.NewMember{
		ClusterID: invitation.ClusterID, MemberID: invitation.MemberID, Incarnation: c.Incarnation, Joins: true, Contacts: contacts,
		Promise: cmp.Or(c.Drift, clock.DefaultDrift).GrantPromise(cmp.Or(c.MasterLease, masterlease.DefaultDuration)),
	})
	if err == nil && n.cfg.Program != "" {
		err = record.PutProgram(n.db, n.cfg.Program)
	}
	if err != nil {
		return record.Home{}, datadir.Explain(n.cfg.Dir, err)
	}
	return record.Home{ClusterID: invitation.ClusterID, MemberID: invitation.MemberID, Contacts: contacts}, nil
}

// openMembers notes the members with which the replica was opened. contacts are those that it has from another member.
func (n *Node) openMembers(contacts []roster.Member) error {
	members := n.replica.Members()
	if len(members) == 0 {
		members = contacts
	}
	self := n.replica.MemberID()
	if n.alone() && slices.ContainsFunc(members, func(m roster.Member) bool { return m.ID != self }) {
		return errMembersWithoutAddress
	}
	n.members.Store(&members)
	n.connect(members, n.listed.Load())
	if n.replica.Removed() { // it stopped before another member had said so
		n.noteRemoval()
	}
	return nil
}
