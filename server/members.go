package server

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// membersService tells operators how the members of the group are. Which ones there are is in peers.go.
type membersService struct {
	leasekeeperv1.UnimplementedMembersServer
	s *Server
}

// Get tells how this member is.
func (m *membersService) Get(ctx context.Context, _ *leasekeeperv1.GetMemberRequest) (*leasekeeperv1.GetMemberResponse, error) {
	own, err := m.s.ownMember(ctx)
	if err != nil {
		return nil, err
	}
	return &leasekeeperv1.GetMemberResponse{Member: own}, nil
}

// List tells how all members are.
func (m *membersService) List(ctx context.Context, _ *leasekeeperv1.ListMembersRequest) (*leasekeeperv1.ListMembersResponse, error) {
	h := m.s.member.Header()
	resp := &leasekeeperv1.ListMembersResponse{ClusterId: h.ClusterID, MemberId: h.MemberID}
	if m.s.peers == nil || admission.FromPeer(ctx) {
		own, err := m.s.ownMember(ctx)
		if err != nil {
			return nil, err
		}
		resp.Members = []*leasekeeperv1.Member{own}
		return resp, nil
	}
	var err error
	resp.Members, err = m.s.peers.ask(ctx)
	return resp, err
}

// TransferLeadership has another member lead. It is carried out by the leader.
func (m *membersService) TransferLeadership(ctx context.Context, r *leasekeeperv1.TransferLeadershipRequest) (*leasekeeperv1.TransferLeadershipResponse, error) {
	former := m.s.member.Header().MemberID
	if m.s.leading == nil {
		return nil, fmt.Errorf("%w: the server is alone: there is nobody to lead in its place", backend.ErrInvalid)
	}
	if r.To != 0 {
		if _, ok := m.s.cfg.Cluster.member(r.To); !ok {
			return nil, fmt.Errorf("%w: there is no member %016x", backend.ErrInvalid, r.To)
		}
	}
	if r.To != former {
		if err := m.s.leading.HandOver(ctx, r.To); err != nil {
			return nil, err
		}
	}
	leader, err := m.s.leading.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	return &leasekeeperv1.TransferLeadershipResponse{Leader: leader, Former: former}, nil
}

// Found has this member found its cluster without the members that are missing. It is carried out by the member that is
// asked, and tells the others.
func (m *membersService) Found(ctx context.Context, _ *leasekeeperv1.FoundRequest) (*leasekeeperv1.FoundResponse, error) {
	if m.s.leading == nil {
		return nil, fmt.Errorf("%w: the server is alone: it has founded its cluster by itself", backend.ErrInvalid)
	}
	if err := m.s.leading.Found(ctx); err != nil {
		return nil, err
	}
	return &leasekeeperv1.FoundResponse{}, nil
}

// ownMember is how this member is.
func (s *Server) ownMember(ctx context.Context) (*leasekeeperv1.Member, error) {
	h := s.member.Header()
	own := &leasekeeperv1.Member{
		Id: h.MemberID, Name: s.cfg.Name, ClientUrls: s.clientURLs(), Version: s.cfg.Version,
		Term: h.Term, Revision: h.Revision,
	}
	if err := s.ready(); err != nil {
		own.NotServing = err.Error()
	}
	if s.leading == nil {
		return own, s.describeAlone(ctx, own)
	}
	configured, _ := s.cfg.Cluster.member(h.MemberID)
	own.PeerUrl = configured.PeerURL
	return own, s.describe(ctx, own)
}

// describeAlone fills in what a member says that is no member of a group.
func (s *Server) describeAlone(ctx context.Context, own *leasekeeperv1.Member) error {
	st, err := s.member.Status(ctx)
	if err != nil {
		return err
	}
	own.Leader, own.CommitIndex, own.AppliedIndex = st.Leader, st.AppliedIndex, st.AppliedIndex
	own.Role = leasekeeperv1.Member_CANDIDATE
	if st.Leader == own.Id {
		own.Role = leasekeeperv1.Member_LEADER
	}
	return nil
}

// roles have the same names on both sides.
var roles = map[replica.Role]leasekeeperv1.Member_Role{
	replica.RoleFollower:  leasekeeperv1.Member_FOLLOWER,
	replica.RoleCandidate: leasekeeperv1.Member_CANDIDATE,
	replica.RoleLeader:    leasekeeperv1.Member_LEADER,
}

// describe fills in what a member of a group says.
func (s *Server) describe(ctx context.Context, own *leasekeeperv1.Member) error {
	st, err := s.leading.Cluster(ctx)
	if err != nil {
		return err
	}
	own.Role, own.Leader, own.Term = roles[st.Role], st.Leader, st.Term
	own.CommitIndex, own.AppliedIndex = st.Committed, st.Applied
	own.MasterLeaseNs, own.PromiseNs, own.VoteHoldOffNs = st.Lease.Nanoseconds(), st.Promise.Nanoseconds(), st.HoldOff.Nanoseconds()
	own.ClocksDistrusted = st.Unreliable
	connected := make(map[uint64]bool)
	for _, p := range s.cfg.Cluster.Peers.Status() {
		connected[p.Member] = p.Connected
	}
	for _, m := range st.Members {
		if m.ID == own.Id {
			continue
		}
		own.Peers = append(own.Peers, &leasekeeperv1.MemberPeer{
			Id: m.ID, Connected: connected[m.ID], MatchIndex: m.Match, Lag: m.Lag,
			RawPpm: int64(m.Rate.Raw), BootPpm: int64(m.Rate.Boot), MeasuredNs: m.Rate.Over.Nanoseconds(), ClockSuspect: m.Suspect,
		})
	}
	return nil
}
