package etcdapi

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// clusterMember is what Cluster uses.
type clusterMember interface {
	// ChangeMembers makes one change of the members. Only the leader can; others return [replica.ErrNotLeader].
	ChangeMembers(context.Context, roster.Change) ([]roster.Member, replica.Header, error)
	// Confirm returns when this member has applied everything that was acknowledged before.
	Confirm(context.Context) error
	// Members returns the members as this member has applied them, in order of ids.
	Members(context.Context) ([]roster.Member, replica.Header, error)
}

const (
	// maxPeerURLs bounds the peer URLs of one member.
	maxPeerURLs = 16
	// reservedIDs are this one and the greater one: raft uses them for its own threads.
	reservedIDs = math.MaxUint64 - 1
)

// clusterService is etcd's Cluster. Only the leader changes the members; package forwarding sends it such requests. All
// headers leave the revision out, as in etcd, because members are not part of the key space.
type clusterService struct {
	pb.UnimplementedClusterServer
	*API
}

// MemberList lists the members in order of ids. A linearizable list has every change that was acknowledged before.
func (c *clusterService) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if r.Linearizable {
		if err := c.cfg.Member.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	members, h, err := c.cfg.Member.Members(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.MemberListResponse{Header: clusterHeader(h), Members: c.listed(members)}, nil
}

// MemberAdd adds a member under an id that is drawn here. The id is 0 for no member and is not in use.
func (c *clusterService) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	urls, err := peerURLs(r.PeerURLs)
	if err != nil {
		return nil, err
	}
	members, _, err := c.cfg.Member.Members(ctx)
	if err != nil {
		return nil, err
	}
	added := roster.Member{ID: drawID(members, rand.Uint64), PeerURLs: urls, Learner: r.IsLearner}
	after, h, err := c.cfg.Member.ChangeMembers(ctx, roster.Change{Kind: roster.Add, Member: added})
	if err != nil {
		return nil, err
	}
	return &pb.MemberAddResponse{
		Header: clusterHeader(h), Members: c.listed(after),
		Member: &pb.Member{ID: added.ID, PeerURLs: added.PeerURLs, IsLearner: added.Learner},
	}, nil
}

// MemberRemove removes a member for good.
func (c *clusterService) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	members, h, err := c.changeOne(ctx, roster.Remove, roster.Member{ID: r.ID})
	if err != nil {
		return nil, err
	}
	return &pb.MemberRemoveResponse{Header: h, Members: members}, nil
}

// MemberUpdate replaces the peer URLs of a member. Unlike etcd, it checks them.
func (c *clusterService) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	urls, err := peerURLs(r.PeerURLs)
	if err != nil {
		return nil, err
	}
	members, h, err := c.changeOne(ctx, roster.Update, roster.Member{ID: r.ID, PeerURLs: urls})
	if err != nil {
		return nil, err
	}
	return &pb.MemberUpdateResponse{Header: h, Members: members}, nil
}

// MemberPromote gives a learner a vote, if it has caught up with the leader.
func (c *clusterService) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	members, h, err := c.changeOne(ctx, roster.Promote, roster.Member{ID: r.ID})
	if err != nil {
		return nil, err
	}
	return &pb.MemberPromoteResponse{Header: h, Members: members}, nil
}

// changeOne changes a member that exists. No member has the id 0.
func (c *clusterService) changeOne(ctx context.Context, kind roster.Kind, m roster.Member) ([]*pb.Member, *pb.ResponseHeader, error) {
	if m.ID == 0 {
		return nil, nil, rpctypes.ErrGRPCMemberNotFound
	}
	after, h, err := c.cfg.Member.ChangeMembers(ctx, roster.Change{Kind: kind, Member: m})
	if err != nil {
		return nil, nil, err
	}
	return c.listed(after), clusterHeader(h), nil
}

// listed returns members as etcd's API shows them.
func (c *clusterService) listed(members []roster.Member) []*pb.Member {
	all := make([]*pb.Member, 0, len(members))
	for _, m := range members {
		m = c.cfg.Describe(m)
		all = append(all, &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.Learner})
	}
	return all
}

func clusterHeader(h replica.Header) *pb.ResponseHeader {
	h.Revision = 0
	return header(h)
}

// drawID draws an id that no member has and that raft does not use itself.
func drawID(members []roster.Member, draw func() uint64) uint64 {
	for {
		id := draw()
		taken := slices.ContainsFunc(members, func(m roster.Member) bool { return m.ID == id })
		if !taken && id != 0 && id < reservedIDs {
			return id
		}
	}
}

// peerURLs returns the URLs of a member's port for members, sorted. Each is http:// or https:// and host:port.
func peerURLs(given []string) ([]string, error) {
	if len(given) == 0 || len(given) > maxPeerURLs {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	urls := make([]string, len(given))
	for i, text := range given {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return nil, rpctypes.ErrGRPCMemberBadURLs
		}
		bare := url.URL{Scheme: u.Scheme, Host: u.Host}
		if host, port, err := net.SplitHostPort(u.Host); err != nil || host == "" || port == "" || *u != bare {
			return nil, rpctypes.ErrGRPCMemberBadURLs
		}
		urls[i] = u.String()
	}
	slices.Sort(urls)
	return urls, nil
}
