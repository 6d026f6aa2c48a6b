package memberjson

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// The states of a member.
const (
	Up         = "up"
	NotServing = "not serving"
	Down       = "down"
)

// The roles of a member.
const (
	Leader    = "leader"
	Follower  = "follower"
	Candidate = "candidate"
	Learner   = "learner"
)

// Member is a member of a cluster. For a member that is down, only the fields from the configuration are set: name, id and
// URLs.
type Member struct {
	Name          string   `json:"name"`
	MemberID      string   `json:"member_id"` // hexadecimal
	PeerURL       string   `json:"peer_url"`
	ClientURLs    []string `json:"client_urls"`
	State         string   `json:"state"`  // [Up], [NotServing] or [Down]
	Detail        string   `json:"detail"` // why, unless it is up
	Version       string   `json:"version"`
	Role          string   `json:"role"`   // one of the roles, or "" if it is down
	Leader        string   `json:"leader"` // the id of the leader that this member knows; "" for none
	Term          uint64   `json:"term"`
	Revision      int64    `json:"revision"`
	CommitIndex   uint64   `json:"commit_index"`
	AppliedIndex  uint64   `json:"applied_index"`
	Lag           uint64   `json:"lag"` // committed entries that this member has not applied, by the highest commit index of all members
	MasterLeaseMs int64    `json:"master_lease_ms"`
	PromiseMs     int64    `json:"promise_ms"`
	VoteHoldOffMs int64    `json:"vote_hold_off_ms"`
	ClocksTrusted bool     `json:"clocks_trusted"`
	// Versions of the log: what the member's program understands, what all members understand, what is in use.
	Understands    uint32 `json:"understands"`
	ClusterVersion uint32 `json:"cluster_version"`
	VersionInUse   uint32 `json:"version_in_use"`
	// Space: the bytes of live data and the limit for them (0: none), and the free bytes of the file system (-1: unknown). All are 0
	// if the member is of a version that does not tell.
	DataBytes  int64  `json:"data_bytes"`
	QuotaBytes int64  `json:"quota_bytes"`
	FreeBytes  int64  `json:"free_bytes"`
	Shortage   string `json:"shortage"` // why the member takes no more data, or ""
	Peers      []Peer `json:"peers"`
}

// Peer is another member as one member sees it. Only the leader knows the fields about the log and the clock.
type Peer struct {
	Name         string `json:"name"`
	MemberID     string `json:"member_id"`
	Connected    bool   `json:"connected"`
	MatchIndex   uint64 `json:"match_index"`
	Lag          uint64 `json:"lag"`
	ClockRawPPM  *int64 `json:"clock_raw_ppm"` // null: not measured yet
	ClockBootPPM *int64 `json:"clock_boot_ppm"`
	ClockSuspect bool   `json:"clock_suspect"`
}

// OfMembers returns the JSON of the members of one cluster.
func OfMembers(members []*leasekeeperv1.Member) []Member {
	names, newest := make(map[uint64]string), uint64(0)
	for _, m := range members {
		names[m.Id], newest = m.Name, max(newest, m.CommitIndex)
	}
	all := make([]Member, len(members))
	for i, m := range members {
		all[i] = ofMember(m, names, newest)
	}
	return all
}

func ofMember(m *leasekeeperv1.Member, names map[uint64]string, newest uint64) Member {
	s := Member{
		Name: m.Name, MemberID: ID(m.Id), PeerURL: m.PeerUrl, ClientURLs: append([]string{}, m.ClientUrls...), State: Up,
		Peers: []Peer{},
	}
	if m.Trouble != "" {
		s.State, s.Detail = Down, Innermost(m.Trouble)
		return s
	}
	if m.NotServing != "" {
		s.State, s.Detail = NotServing, m.NotServing
	}
	s.Version, s.Role, s.Term, s.Revision = m.Version, role(m.Role), m.Term, m.Revision
	if m.Learner {
		s.Role = Learner
	}
	if m.Leader != 0 {
		s.Leader = ID(m.Leader)
	}
	s.CommitIndex, s.AppliedIndex, s.Lag = m.CommitIndex, m.AppliedIndex, newest-min(newest, m.AppliedIndex)
	s.MasterLeaseMs, s.PromiseMs, s.VoteHoldOffMs = millis(m.MasterLeaseNs), millis(m.PromiseNs), millis(m.VoteHoldOffNs)
	s.ClocksTrusted = m.ClocksDistrusted == ""
	s.Understands, s.ClusterVersion, s.VersionInUse = m.Understands, m.ClusterVersion, m.VersionInUse
	s.DataBytes, s.QuotaBytes, s.FreeBytes, s.Shortage = m.DataBytes, m.QuotaBytes, m.FreeBytes, m.Shortage
	for _, p := range m.Peers {
		seen := Peer{
			Name: names[p.Id], MemberID: ID(p.Id), Connected: p.Connected, MatchIndex: p.MatchIndex, Lag: p.Lag, ClockSuspect: p.ClockSuspect,
		}
		if p.MeasuredNs > 0 {
			seen.ClockRawPPM, seen.ClockBootPPM = &p.RawPpm, &p.BootPpm
		}
		s.Peers = append(s.Peers, seen)
	}
	slices.SortFunc(s.Peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// ID returns the id of a member as people write it.
func ID(id uint64) string { return fmt.Sprintf("%016x", id) }

func millis(ns int64) int64 { return time.Duration(ns).Milliseconds() }

func role(role leasekeeperv1.Member_Role) string {
	switch role {
	case leasekeeperv1.Member_LEADER:
		return Leader
	case leasekeeperv1.Member_FOLLOWER:
		return Follower
	case leasekeeperv1.Member_CANDIDATE:
		return Candidate
	}
	return "unknown"
}

// RateInWords formats the measured rates of a peer's clocks, relative to the leader's.
func (p *Peer) RateInWords() string {
	if p.ClockRawPPM == nil {
		return "not measured yet"
	}
	text := fmt.Sprintf("%+d ppm", *p.ClockRawPPM)
	if *p.ClockBootPPM != *p.ClockRawPPM {
		text = fmt.Sprintf("%+d and %+d ppm", *p.ClockRawPPM, *p.ClockBootPPM)
	}
	if p.ClockSuspect {
		text += ", outside the bound"
	}
	return text
}

// VersionsInWords says what the cluster's versions mean for an operator, by what one member knows of them.
func (m *Member) VersionsInWords() string {
	if m.ClusterVersion == 0 {
		return "log version: not stated yet; the leader states it when it has heard from all members"
	}
	return fmt.Sprintf("log version %d: all members understand it; version %d is in use: a new member must understand that", m.ClusterVersion, m.VersionInUse)
}

// Innermost removes the prefixes that gRPC adds to the error of a connection.
func Innermost(text string) string {
	for _, wrap := range []string{"desc = ", "transport: ", "preface: ", "handshake failed: "} {
		if i := strings.LastIndex(text, wrap); i >= 0 {
			text = text[i+len(wrap):]
		}
	}
	return strings.Trim(text, `"`)
}
