package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// memberStatus is the output of `status` about one member of a cluster. For a member that is down, only the fields from
// the configuration are set: name, id and URLs.
type memberStatus struct {
	Name          string   `json:"name"`
	MemberID      string   `json:"member_id"` // hexadecimal
	PeerURL       string   `json:"peer_url"`
	ClientURLs    []string `json:"client_urls"`
	State         string   `json:"state"`  // "up", "not serving" or "down"
	Detail        string   `json:"detail"` // why, unless it is up
	Version       string   `json:"version"`
	Role          string   `json:"role"`   // "leader", "follower", "candidate", "learner", or "" if it is down
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
	Understands    uint32       `json:"understands"`
	ClusterVersion uint32       `json:"cluster_version"`
	VersionInUse   uint32       `json:"version_in_use"`
	Peers          []peerStatus `json:"peers"`
}

// peerStatus is another member as one member sees it. Only the leader knows the fields about the log and the clock.
type peerStatus struct {
	Name         string `json:"name"`
	MemberID     string `json:"member_id"`
	Connected    bool   `json:"connected"`
	MatchIndex   uint64 `json:"match_index"`
	Lag          uint64 `json:"lag"`
	ClockRawPPM  *int64 `json:"clock_raw_ppm"` // null: not measured yet
	ClockBootPPM *int64 `json:"clock_boot_ppm"`
	ClockSuspect bool   `json:"clock_suspect"`
}

// members asks the server for the members of its cluster. It returns nil if the server is not in a cluster, or has no
// such service.
func (c *client) members(ctx context.Context) ([]memberStatus, error) {
	answer, err := leasekeeperv1.NewMembersClient(c.conn).List(ctx, &leasekeeperv1.ListMembersRequest{})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil // etcd, for example
	}
	if err != nil || len(answer.Members) < 2 {
		return nil, err
	}
	names, newest := make(map[uint64]string), uint64(0)
	for _, m := range answer.Members {
		names[m.Id], newest = m.Name, max(newest, m.CommitIndex)
	}
	all := make([]memberStatus, len(answer.Members))
	for i, m := range answer.Members {
		all[i] = newMemberStatus(m, names, newest)
	}
	return all, nil
}

func newMemberStatus(m *leasekeeperv1.Member, names map[uint64]string, newest uint64) memberStatus {
	s := memberStatus{
		Name: m.Name, MemberID: memberID(m.Id), PeerURL: m.PeerUrl, ClientURLs: append([]string{}, m.ClientUrls...), State: "up",
		Peers: []peerStatus{},
	}
	if m.Trouble != "" {
		s.State, s.Detail = "down", innermost(m.Trouble)
		return s
	}
	if m.NotServing != "" {
		s.State, s.Detail = "not serving", m.NotServing
	}
	s.Version, s.Role, s.Term, s.Revision = m.Version, memberRole(m.Role), m.Term, m.Revision
	if m.Learner {
		s.Role = "learner"
	}
	if m.Leader != 0 {
		s.Leader = memberID(m.Leader)
	}
	s.CommitIndex, s.AppliedIndex, s.Lag = m.CommitIndex, m.AppliedIndex, newest-min(newest, m.AppliedIndex)
	s.MasterLeaseMs, s.PromiseMs, s.VoteHoldOffMs = millis(m.MasterLeaseNs), millis(m.PromiseNs), millis(m.VoteHoldOffNs)
	s.ClocksTrusted = m.ClocksDistrusted == ""
	s.Understands, s.ClusterVersion, s.VersionInUse = m.Understands, m.ClusterVersion, m.VersionInUse
	for _, p := range m.Peers {
		seen := peerStatus{
			Name: names[p.Id], MemberID: memberID(p.Id), Connected: p.Connected, MatchIndex: p.MatchIndex, Lag: p.Lag, ClockSuspect: p.ClockSuspect,
		}
		if p.MeasuredNs > 0 {
			seen.ClockRawPPM, seen.ClockBootPPM = &p.RawPpm, &p.BootPpm
		}
		s.Peers = append(s.Peers, seen)
	}
	slices.SortFunc(s.Peers, func(a, b peerStatus) int { return strings.Compare(a.Name, b.Name) })
	return s
}

func memberID(id uint64) string { return fmt.Sprintf("%016x", id) }

func millis(ns int64) int64 { return time.Duration(ns).Milliseconds() }

func memberRole(role leasekeeperv1.Member_Role) string {
	switch role {
	case leasekeeperv1.Member_LEADER:
		return "leader"
	case leasekeeperv1.Member_FOLLOWER:
		return "follower"
	case leasekeeperv1.Member_CANDIDATE:
		return "candidate"
	}
	return "unknown"
}

// printMembers prints a table of the members, and a table of the other members as the leader sees them.
func printMembers(cmd *cobra.Command, members []memberStatus) error {
	rows := [][]string{{"MEMBER", "ID", "STATE", "ROLE", "TERM", "APPLIED", "LAG", "MASTER LEASE", "PROMISE", "VOTE HOLD-OFF", "CLIENTS"}}
	var leader *memberStatus
	for i := range members {
		m := &members[i]
		row := []string{m.Name, m.MemberID, m.State}
		if m.State == "down" {
			row = append(row, "-", "-", "-", "-", "-", "-", "-", clientsInWords(m.ClientURLs))
			rows = append(rows, row)
			continue
		}
		lease := "-"
		if m.Role == "leader" {
			leader, lease = m, millisInWords(m.MasterLeaseMs)
		}
		rows = append(rows, append(row, m.Role, strconv.FormatUint(m.Term, 10), strconv.FormatUint(m.AppliedIndex, 10), strconv.FormatUint(m.Lag, 10),
			lease, millisInWords(m.PromiseMs), millisInWords(m.VoteHoldOffMs), clientsInWords(m.ClientURLs)))
	}
	w := cmd.OutOrStdout()
	console.PrintLine(w, "") // PrintTable returns the error
	if err := console.PrintTable(w, rows); err != nil {
		return err
	}
	for _, m := range members {
		if m.Detail != "" {
			console.PrintLine(w, "%s is %s: %s", m.Name, m.State, m.Detail)
		}
	}
	if leader == nil {
		return console.PrintLines(w, "\nno leader: none of the members that answer leads\n")
	}
	console.PrintLine(w, "")
	console.PrintLine(w, "how the leader %s sees the other members:", leader.Name)
	rows = [][]string{{"PEER", "CONNECTED", "MATCH", "LAG", "CLOCK RATE"}}
	for _, p := range leader.Peers {
		rows = append(rows, []string{p.Name, yesOrNo(p.Connected), strconv.FormatUint(p.MatchIndex, 10), strconv.FormatUint(p.Lag, 10), p.rateInWords()})
	}
	if err := console.PrintTable(w, rows); err != nil {
		return err
	}
	return console.PrintLines(w, "\n"+leader.versionsInWords()+"\n")
}

// versionsInWords says what the cluster's versions mean for an operator.
func (m *memberStatus) versionsInWords() string {
	if m.ClusterVersion == 0 {
		return "log version: not stated yet; the leader states it when it has heard from all members"
	}
	return fmt.Sprintf("log version %d: all members understand it; version %d is in use, and programs that do not understand that cannot join", m.ClusterVersion, m.VersionInUse)
}

func clientsInWords(urls []string) string {
	if len(urls) == 0 {
		return "unknown"
	}
	return strings.Join(urls, ",")
}

func millisInWords(ms int64) string {
	if ms == 0 {
		return "none"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// rateInWords formats the measured rates of a peer's clocks, relative to the leader's.
func (p *peerStatus) rateInWords() string {
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
