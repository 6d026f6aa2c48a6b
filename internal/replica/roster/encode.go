package roster

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// Entry is a change as the log has it.
type Entry struct {
	// Sequence is the proposer's number of the entry within its term.
	Sequence uint64
	Change   Change
	// Founders is the roster before the change, as the proposer knew it, if the cluster had no list then.
	Founders Roster
	// By is on whose behalf the change is made, and Wall the proposer's time of day in milliseconds since 1970; 0 if unknown.
	// Both are zero if the audit log does not record the change.
	By   access.Caller
	Wall int64
}

// CallerOf returns the caller of a message; the zero Caller if that is nil.
func CallerOf(m *logpb.Caller) access.Caller {
	return access.Caller{
		User: string(m.GetUser()), Revision: m.GetRevision(),
		Origin: access.Origin{Address: string(m.GetAddress()), Certificate: string(m.GetCertificate())},
	}
}

// Marshal encodes the entry.
func (e Entry) Marshal() []byte {
	m := &logpb.MemberChange{Sequence: e.Sequence, Kind: uint32(e.Change.Kind), Member: wireMember(e.Change.Member)}
	if !e.Founders.Empty() {
		m.Founders = e.Founders.Record()
	}
	if e.By != (access.Caller{}) {
		m.WallMs = e.Wall
		m.Caller = &logpb.Caller{
			User: []byte(e.By.User), Revision: e.By.Revision, Address: []byte(e.By.Origin.Address), Certificate: []byte(e.By.Origin.Certificate),
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("roster: cannot encode a change: %v", err))
	}
	return b
}

// ParseEntry decodes an entry.
func ParseEntry(b []byte) (Entry, error) {
	m := new(logpb.MemberChange)
	if err := proto.Unmarshal(b, m); err != nil {
		return Entry{}, err
	}
	if k := Kind(m.Kind); m.Kind > uint32(Bind) || k < Add || m.GetMember().GetId() == 0 {
		return Entry{}, fmt.Errorf("a change of kind %d of member %x, which no member proposes", m.Kind, m.GetMember().GetId())
	}
	founders, err := FromRecord(m.Founders)
	return Entry{
		Sequence: m.Sequence, Change: Change{Kind: Kind(m.Kind), Member: ownMember(m.Member)}, Founders: founders,
		By: CallerOf(m.Caller), Wall: m.WallMs,
	}, err
}

// Record returns the roster as a record.
func (r Roster) Record() *logpb.Roster {
	m := &logpb.Roster{Removed: slices.Clone(r.removed)}
	for _, member := range r.members {
		m.Members = append(m.Members, wireMember(member))
	}
	return m
}

// FromRecord returns the roster of a record; nil is the zero roster.
func FromRecord(m *logpb.Roster) (Roster, error) {
	r := Roster{removed: slices.Clone(m.GetRemoved())}
	for _, member := range m.GetMembers() {
		r.members = append(r.members, ownMember(member))
	}
	sorted := slices.IsSorted(r.removed) && slices.IsSortedFunc(r.members, byID)
	for i, member := range r.members {
		if member.ID == 0 || i > 0 && r.members[i-1].ID == member.ID || r.Removed(member.ID) {
			sorted = false
		}
	}
	if !sorted {
		return Roster{}, fmt.Errorf("the list of members is damaged: %v", m)
	}
	return r, nil
}

func wireMember(m Member) *logpb.ClusterMember {
	return &logpb.ClusterMember{
		Id: m.ID, Name: m.Name, PeerUrls: m.PeerURLs, ClientUrls: m.ClientURLs, Learner: m.Learner, Incarnation: m.Incarnation,
	}
}

func ownMember(m *logpb.ClusterMember) Member {
	return Member{
		ID: m.GetId(), Name: m.GetName(), PeerURLs: m.GetPeerUrls(), ClientURLs: m.GetClientUrls(), Learner: m.GetLearner(),
		Incarnation: m.GetIncarnation(),
	}
}
