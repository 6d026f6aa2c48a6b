package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

const (
	// manyBehind is the number of committed entries from which a member that has not applied them lags.
	manyBehind = 1000
	// relativePPM is the difference of two members' clock rates that time services explain: each slews by at most slewPPM.
	relativePPM = 2 * slewPPM
)

// judgeMembers judges the members of a cluster, or a single server, as the server reports them.
func judgeMembers(members []*leasekeeperv1.Member) []Check {
	up := slices.DeleteFunc(slices.Clone(members), func(m *leasekeeperv1.Member) bool { return m.Trouble != "" })
	if len(members) < 2 {
		return []Check{judgeLeaderOf(up), judgeProgramVersions(up), judgeLogVersions(up)}
	}
	return []Check{
		judgeReachable(members), judgeLeaderOf(up), judgeProgramVersions(up), judgeLogVersions(up), judgeLag(up), judgeLinks(up),
		judgeRates(up), judgeTrust(up), judgeCount(members), judgePeerTLS(allTLS(members), peerAddresses(members)),
	}
}

// nameOf returns the name of a member, or its id if it has none yet.
func nameOf(m *leasekeeperv1.Member) string {
	if m.Name == "" {
		return fmt.Sprintf("%016x", m.Id)
	}
	return m.Name
}

// judgeReachable judges whether the members answer and serve.
func judgeReachable(members []*leasekeeperv1.Member) Check {
	const name = "members"
	var down []string
	voters, healthy := 0, 0
	for _, m := range members {
		serves := m.Trouble == "" && m.NotServing == ""
		if !m.Learner {
			voters++
			if serves {
				healthy++
			}
		}
		switch {
		case m.Trouble != "":
			down = append(down, nameOf(m)+" is down: "+m.Trouble)
		case m.NotServing != "":
			down = append(down, nameOf(m)+" does not serve: "+m.NotServing)
		}
	}
	found := fmt.Sprintf("%d of %d serve", len(members)-len(down), len(members))
	switch {
	case len(down) == 0:
		return good(name, "%s", found)
	case healthy <= voters/2:
		return bad(Fail, name, found+"; "+listed(down), "start members until a majority serves, or see the page on operations about a lost quorum")
	}
	return bad(Warn, name, found+"; "+listed(down), "start or replace these members: until then fewer failures stop the cluster")
}

// judgeLeader judges whether a server knows a leader.
func judgeLeader(leader uint64) Check {
	if leader == 0 {
		return bad(Fail, "leader", "the server knows no leader", "start members until a majority runs, and check that they reach each other")
	}
	return good("leader", "%016x", leader)
}

// judgeLeaderOf judges whether the members that answer agree on a leader.
func judgeLeaderOf(up []*leasekeeperv1.Member) Check {
	const name = "leader"
	var leaders []uint64
	for _, m := range up {
		if m.Leader != 0 && !slices.Contains(leaders, m.Leader) {
			leaders = append(leaders, m.Leader)
		}
	}
	switch {
	case len(leaders) == 0:
		return judgeLeader(0)
	case len(leaders) > 1:
		return bad(Warn, name, "the members know different leaders", "run this again: an election may be under way; if it lasts, check the network between the members")
	}
	i := slices.IndexFunc(up, func(m *leasekeeperv1.Member) bool { return m.Id == leaders[0] })
	if i < 0 {
		return judgeLeader(leaders[0])
	}
	return good(name, "%s, term %d", nameOf(up[i]), up[i].Term)
}

// judgeProgramVersions judges whether members run the same program.
func judgeProgramVersions(up []*leasekeeperv1.Member) Check {
	const name = "program versions"
	var versions, each []string
	for _, m := range up {
		if !slices.Contains(versions, m.Version) {
			versions = append(versions, m.Version)
		}
		each = append(each, nameOf(m)+" "+m.Version)
	}
	switch {
	case len(versions) == 0:
		return skipped(name, "no member answers")
	case len(versions) > 1:
		return bad(Warn, name, listed(each), "finish the upgrade: replace the program of the older members, one after the other")
	}
	return good(name, "%s", versions[0])
}

// judgeLogVersions judges which version of the log the cluster uses.
func judgeLogVersions(up []*leasekeeperv1.Member) Check {
	const name = "log version"
	var stated, inUse, understood uint32
	for _, m := range up {
		stated, inUse, understood = max(stated, m.ClusterVersion), max(inUse, m.VersionInUse), max(understood, m.Understands)
	}
	switch {
	case len(up) == 0:
		return skipped(name, "no member answers")
	case stated == 0 && len(up) > 1:
		return bad(Warn, name, "not stated yet", "start all members: the leader states the log version when it has heard from each")
	case stated < understood && len(up) > 1:
		return bad(Warn, name, fmt.Sprintf("%d, but some members understand %d", stated, understood), "replace the program of the older members, or start those that are down")
	}
	return good(name, "%d understood by all, %d in use", max(stated, inUse), inUse)
}

// judgeLag judges how many committed entries each member has still to apply.
func judgeLag(up []*leasekeeperv1.Member) Check {
	const name = "lag"
	var newest, most uint64
	for _, m := range up {
		newest = max(newest, m.CommitIndex)
	}
	var behind []string
	for _, m := range up {
		lag := newest - min(newest, m.AppliedIndex)
		if most = max(most, lag); lag >= manyBehind {
			behind = append(behind, fmt.Sprintf("%s by %d entries", nameOf(m), lag))
		}
	}
	switch {
	case len(up) == 0:
		return skipped(name, "no member answers")
	case len(behind) > 0:
		return bad(Warn, name, "behind: "+listed(behind), "check the disk, the processor and the network of these members")
	}
	return good(name, "at most %d entries", most)
}

// judgeLinks judges whether the members are connected to each other.
func judgeLinks(up []*leasekeeperv1.Member) Check {
	const name = "connections"
	names := make(map[uint64]string)
	for _, m := range up {
		names[m.Id] = nameOf(m)
	}
	var cut []string
	for _, m := range up {
		for _, p := range m.Peers {
			if other, isUp := names[p.Id]; isUp && !p.Connected {
				cut = append(cut, nameOf(m)+" to "+other)
			}
		}
	}
	if len(cut) > 0 {
		return bad(Warn, name, "not connected: "+listed(cut), "check the firewall between the members, and the certificates of both")
	}
	return good(name, "the members that answer are connected to each other")
}

// judgeRates judges the rates of members' clocks as the members measure them.
func judgeRates(up []*leasekeeperv1.Member) Check {
	const name = "clocks of members"
	most, measured := int64(0), false
	var suspect, fast []string
	for _, m := range up {
		for _, p := range m.Peers {
			if p.ClockSuspect {
				suspect = append(suspect, fmt.Sprintf("%016x seen by %s", p.Id, nameOf(m)))
			}
			if p.MeasuredNs <= 0 {
				continue
			}
			measured = true
			off := max(p.RawPpm, -p.RawPpm, p.BootPpm, -p.BootPpm)
			if most = max(most, off); off > relativePPM {
				fast = append(fast, fmt.Sprintf("%016x by %d ppm, seen by %s", p.Id, off, nameOf(m)))
			}
		}
	}
	switch {
	case len(suspect) > 0:
		return bad(Fail, name, "outside the bound: "+listed(suspect), "check the machine's time service, or move the member to another machine: the promises rest on --clock-drift")
	case !measured:
		return skipped(name, "the leader has measured no rates yet: run this again in a minute")
	case len(fast) > 0:
		return bad(Warn, name, "they differ: "+listed(fast), "check the time services of these machines: two good clocks differ by at most %d ppm", relativePPM)
	}
	return good(name, "the rates differ by at most %d ppm", most)
}

// judgeTrust judges whether the members trust the clocks.
func judgeTrust(up []*leasekeeperv1.Member) Check {
	const name = "trust in clocks"
	var without []string
	for _, m := range up {
		if m.ClocksDistrusted != "" {
			without = append(without, nameOf(m)+": "+m.ClocksDistrusted)
		}
	}
	if len(without) > 0 {
		return bad(Fail, name, "not trusted by "+listed(without), "repair the clock that broke its bound, then restart these members: until then each answer needs a majority")
	}
	return good(name, "all members that answer trust the clocks")
}

// judgeCount judges the number of members with a vote.
func judgeCount(members []*leasekeeperv1.Member) Check {
	const name = "votes"
	voters, learners := 0, 0
	for _, m := range members {
		if m.Learner {
			learners++
		} else {
			voters++
		}
	}
	found := fmt.Sprintf("%d members vote, %d may fail", voters, (voters-1)/2)
	switch {
	case learners > 0:
		return bad(Warn, name, fmt.Sprintf("%s; %d without a vote", found, learners), "give the learner a vote with `leasekeeper member promote`, or remove it")
	case voters%2 == 0:
		return bad(Warn, name, found, "add or remove one: an even number survives no more failures than one member fewer")
	}
	return good(name, "%s", found)
}

// allTLS reports whether the members speak TLS with each other.
func allTLS(members []*leasekeeperv1.Member) bool {
	return !slices.ContainsFunc(members, func(m *leasekeeperv1.Member) bool {
		return m.PeerUrl != "" && !strings.HasPrefix(m.PeerUrl, "https://")
	})
}

// peerAddresses returns the addresses of members.
func peerAddresses(members []*leasekeeperv1.Member) (all []string) {
	for _, m := range members {
		if _, address, found := strings.Cut(m.PeerUrl, "://"); found {
			all = append(all, strings.TrimSuffix(address, "/"))
		}
	}
	return all
}

// judgeAlarms judges what a server reports as wrong with itself.
func judgeAlarms(alarms []string) Check {
	const name = "alarms"
	switch {
	case len(alarms) == 0:
		return good(name, "none")
	case strings.Contains(strings.Join(alarms, " "), "NOSPACE"):
		return bad(Fail, name, listed(alarms), "make space on the disk, or raise --quota-bytes: until then the server refuses puts and grants")
	}
	return bad(Fail, name, listed(alarms), "`leasekeeper status` shows more; the log of the server says what to do")
}
