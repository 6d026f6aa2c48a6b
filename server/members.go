package server

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// membersService reports the state of the cluster's members to operators.
type membersService struct {
	leasekeeperv1.UnimplementedMembersServer
	s *Server
}

// Get returns the state of this member.
func (m *membersService) Get(ctx context.Context, _ *leasekeeperv1.GetMemberRequest) (*leasekeeperv1.GetMemberResponse, error) {
	own, err := m.s.ownMember(ctx)
	if err != nil {
		return nil, err
	}
	return &leasekeeperv1.GetMemberResponse{Member: own}, nil
}

// List returns the state of all members.
func (m *membersService) List(ctx context.Context, _ *leasekeeperv1.ListMembersRequest) (*leasekeeperv1.ListMembersResponse, error) {
	h := m.s.member.Header()
	resp := &leasekeeperv1.ListMembersResponse{ClusterId: h.ClusterID, MemberId: h.MemberID}
	if m.s.reports == nil || admission.FromPeer(ctx) {
		own, err := m.s.ownMember(ctx)
		if err != nil {
			return nil, err
		}
		resp.Members = []*leasekeeperv1.Member{own}
		return resp, nil
	}
	var err error
	resp.Members, err = m.s.reports.list(ctx)
	return resp, err
}

// TransferLeadership makes another member the leader. The leader serves the request.
func (m *membersService) TransferLeadership(ctx context.Context, r *leasekeeperv1.TransferLeadershipRequest) (*leasekeeperv1.TransferLeadershipResponse, error) {
	former := m.s.member.Header().MemberID
	if m.s.clusterNode == nil {
		return nil, fmt.Errorf("%w: the server is alone: no other member can lead in its place", backend.ErrInvalid)
	}
	if r.To != 0 {
		if err := m.s.checkMayLead(r.To); err != nil {
			return nil, err
		}
	}
	if r.To != former {
		if err := m.s.clusterNode.HandOver(ctx, r.To); err != nil {
			return nil, err
		}
	}
	leader, err := m.s.clusterNode.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	return &leasekeeperv1.TransferLeadershipResponse{Leader: leader, Former: former}, nil
}

// checkMayLead returns an error if no voter has an id.
func (s *Server) checkMayLead(id uint64) error {
	for _, m := range s.listed() {
		switch {
		case m.ID != id:
		case m.Learner:
			return fmt.Errorf("%w: the member %016x is a learner, and has no vote", backend.ErrInvalid, id)
		default:
			return nil
		}
	}
	return fmt.Errorf("%w: there is no member %016x", backend.ErrInvalid, id)
}

// Found makes this member found its cluster without the missing members. The member that receives the request serves
// it, and informs the others.
func (m *membersService) Found(ctx context.Context, _ *leasekeeperv1.FoundRequest) (*leasekeeperv1.FoundResponse, error) {
	if m.s.clusterNode == nil {
		return nil, fmt.Errorf("%w: the server is alone: it founded its cluster when it started", backend.ErrInvalid)
	}
	if err := m.s.clusterNode.Found(ctx); err != nil {
		return nil, err
	}
	return &leasekeeperv1.FoundResponse{}, nil
}

// ownMember returns the state of this member.
func (s *Server) ownMember(ctx context.Context) (*leasekeeperv1.Member, error) {
	h := s.member.Header()
	own := &leasekeeperv1.Member{
		Id: h.MemberID, Name: s.cfg.Name, ClientUrls: s.clientURLs(), Version: s.cfg.Version,
		Term: h.Term, Revision: h.Revision,
	}
	if err := s.ready(); err != nil {
		own.NotServing = err.Error()
	}
	st, err := s.member.Status(ctx)
	if err != nil {
		return nil, err
	}
	own.DataBytes, own.QuotaBytes, own.FreeBytes, own.Shortage = st.DataBytes, st.QuotaBytes, st.FreeBytes, shortages[st.Shortage]
	own.Renewals = &st.Renewed
	if s.clusterNode == nil {
		describeAlone(own, st)
		return own, nil
	}
	for _, m := range s.listed() {
		if m.ID == h.MemberID {
			own.PeerUrl, own.Learner = peerURL(m), m.Learner
		}
	}
	return own, s.describe(ctx, own)
}

// describeAlone fills in the state of a single server.
func describeAlone(own *leasekeeperv1.Member, st node.Status) {
	describeVersions(own, st.Versions)
	own.Leader, own.CommitIndex, own.AppliedIndex = st.Leader, st.AppliedIndex, st.AppliedIndex
	own.Role = leasekeeperv1.Member_CANDIDATE
	if st.Leader == own.Id {
		own.Role = leasekeeperv1.Member_LEADER
	}
}

// shortages says why a member takes no more data.
var shortages = map[replica.Shortage]string{
	replica.DiskFull: "its disk is full", replica.QuotaExceeded: "its data has reached the quota (--quota-bytes)", replica.Ordered: "an operator has raised the alarm NOSPACE",
}

func describeVersions(own *leasekeeperv1.Member, v gate.State) {
	own.Understands, own.ClusterVersion, own.VersionInUse = uint32(gate.Newest), uint32(v.Cluster), uint32(v.InUse)
}

// roles maps the roles of package replica to those of the API.
var roles = map[replica.Role]leasekeeperv1.Member_Role{
	replica.RoleFollower:  leasekeeperv1.Member_FOLLOWER,
	replica.RoleCandidate: leasekeeperv1.Member_CANDIDATE,
	replica.RoleLeader:    leasekeeperv1.Member_LEADER,
}

// describe fills in the state of a member of a cluster.
func (s *Server) describe(ctx context.Context, own *leasekeeperv1.Member) error {
	st, err := s.clusterNode.Cluster(ctx)
	if err != nil {
		return err
	}
	own.Role, own.Leader, own.Term = roles[st.Role], st.Leader, st.Term
	own.CommitIndex, own.AppliedIndex = st.Committed, st.Applied
	own.MasterLeaseNs, own.PromiseNs, own.VoteHoldOffNs = st.Lease.Nanoseconds(), st.Promise.Nanoseconds(), st.HoldOff.Nanoseconds()
	own.ClocksDistrusted = st.Unreliable
	describeVersions(own, st.Versions)
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
