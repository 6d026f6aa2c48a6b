package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/server"
)

// groupSettings say which group a server is a member of. They are as they were written.
type groupSettings struct {
	initialCluster            string
	listen, advertise         string
	cert, key, ca             string
	insecure                  string
	masterLease, drift        string
	electionTimeout, patience string
}

var groupSettingsKnown = []setting{
	{"initial-cluster", "", "all `members` of the group that this server is one of, as a=host:port,b=host:port,c=host:port with the addresses at which they reach each other; the same at every member and every start (default: the server is alone)", func(s *settings) *string { return &s.group.initialCluster }},
	{"peer-listen", "127.0.0.1:2380", "`host:port` for the other members", func(s *settings) *string { return &s.group.listen }},
	{"peer-advertise", "", "`host:port` at which the others reach this one; no other than that in --initial-cluster (default: that)", func(s *settings) *string { return &s.group.advertise }},
	{"peer-cert", "", "`file` with the certificate to show to other members (PEM): speak TLS only", func(s *settings) *string { return &s.group.cert }},
	{"peer-key", "", "`file` with its key", func(s *settings) *string { return &s.group.key }},
	{"peer-ca", "", "`file` with the certificates that those of all members must descend from", func(s *settings) *string { return &s.group.ca }},
	{"insecure-peers", "false", "serve with --client-ca although members are connected without TLS: whoever reaches the port for members can read and change everything without a certificate", func(s *settings) *string { return &s.group.insecure }},
	{"master-lease", "900ms", "the `duration` for which the other members promise a leader not to elect another, so that it can answer from memory", func(s *settings) *string { return &s.group.masterLease }},
	{"clock-drift", "1%", "the largest `deviation` of any member's clock from the true rate", func(s *settings) *string { return &s.group.drift }},
	{"election-timeout", "1s", "the `duration` without a leader after which another is elected", func(s *settings) *string { return &s.group.electionTimeout }},
	{"read-timeout", "1s", "the `duration` that a request waits for a leader, or for the leader to be sure that it leads", func(s *settings) *string { return &s.group.patience }},
}

const (
	// maxGroup is how many members a group has at most. Each change is sent to all of them.
	maxGroup = 9
	// usualGroup is how many are of use.
	usualGroup = 7
	// What an election timeout may be: members look at the time ten times a second.
	minElection, maxElection = 300 * time.Millisecond, time.Minute
	minLease                 = 100 * time.Millisecond
	minPatience              = 50 * time.Millisecond
	maxDriftPercent          = 10
)

// groupPlan is what groupSettings come to.
type groupPlan struct {
	members  []plannedMember // by name
	self     plannedMember
	cluster  uint64
	listen   string
	tls      [3]string // certificate, key, authority
	insecure bool      // a port for members without TLS may undo --client-ca
	lease    time.Duration
	drift    clock.Drift
	election time.Duration
	patience time.Duration
}

type plannedMember struct {
	name, address string
	id            uint64
}

// plan returns nil if the server is alone.
func (s settings) plan() (*groupPlan, error) {
	g := s.group
	if g.initialCluster == "" {
		for _, alone := range []struct{ key, value string }{
			{"peer-advertise", g.advertise}, {"peer-cert", g.cert}, {"peer-key", g.key}, {"peer-ca", g.ca},
			{"insecure-peers", strings.TrimPrefix(g.insecure, "false")},
		} {
			if alone.value != "" {
				return nil, wrongUsage("%s is given without --initial-cluster: name all members of the group with that, or leave %[1]s away", alone.key)
			}
		}
		return nil, nil
	}
	members, err := parseMembers(g.initialCluster)
	if err != nil {
		return nil, err
	}
	p := &groupPlan{members: members, cluster: clusterID(members), listen: g.listen, tls: [3]string{g.cert, g.key, g.ca}}
	if err := p.findSelf(s.name, g.advertise); err != nil {
		return nil, err
	}
	if given := len(strings.Join(p.tls[:], "")); given > 0 && slices.Contains(p.tls[:], "") {
		return nil, wrongUsage("peer-cert, peer-key and peer-ca belong together: give all three for TLS between members, or none")
	}
	if _, _, err := net.SplitHostPort(p.listen); err != nil {
		return nil, wrongUsage("peer-listen is %q: write host:port, such as 0.0.0.0:2380", p.listen)
	}
	if p.insecure, err = strconv.ParseBool(g.insecure); err != nil {
		return nil, wrongUsage("insecure-peers is %q: write true or false", g.insecure)
	}
	if s.clientCA != "" && p.tls[0] == "" && !p.insecure && !isLoopback(p.listen) {
		return nil, wrongUsage("%v", server.ErrOpenPeers)
	}
	return p, p.readTimes(g)
}

// parseMembers reads the list, and returns it in order of names.
func parseMembers(list string) ([]plannedMember, error) {
	var members []plannedMember
	names, addresses := make(map[string]bool), make(map[string]string)
	for entry := range strings.SplitSeq(list, ",") {
		name, address, found := strings.Cut(strings.TrimSpace(entry), "=")
		if !found || name == "" {
			return nil, wrongUsage("%q in initial-cluster names no member: write NAME=HOST:PORT for each, with commas between", entry)
		}
		if strings.Contains(address, "://") {
			return nil, wrongUsage("the address of %s in initial-cluster is %q: leave http:// away, and write HOST:PORT; with --peer-cert members speak TLS", name, address)
		}
		host, port, err := net.SplitHostPort(address)
		if n, numberErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || numberErr != nil || n == 0 {
			return nil, wrongUsage("the address of %s in initial-cluster is %q: write HOST:PORT, such as 10.0.0.7:2380", name, address)
		}
		if names[name] {
			return nil, wrongUsage("initial-cluster names %s twice: give each member a name of its own", name)
		}
		if other, taken := addresses[address]; taken {
			return nil, wrongUsage("%s and %s have the same address %s in initial-cluster: give each member its own", other, name, address)
		}
		names[name], addresses[address] = true, name
		members = append(members, plannedMember{name: name, address: address})
	}
	switch {
	case len(members) == 1:
		return nil, wrongUsage("initial-cluster has one member only: name three, or leave it away for a server that is alone")
	case len(members) > maxGroup:
		return nil, wrongUsage("initial-cluster has %d members, and %d are the most: three or five are usual", len(members), maxGroup)
	}
	slices.SortFunc(members, func(a, b plannedMember) int { return strings.Compare(a.name, b.name) })
	all := make([]string, len(members))
	for i, m := range members {
		all[i] = m.name
	}
	for i, m := range members {
		members[i].id = hashOf("member", append(all, m.name)...)
	}
	return members, nil
}

// clusterID is the same for members that were given the same names. Addresses are not in it, so that they can change
// while the folders stay.
func clusterID(members []plannedMember) uint64 {
	var all []string
	for _, m := range members {
		all = append(all, m.name)
	}
	return hashOf("cluster", all...)
}

// hashOf makes an id above 1 of texts.
func hashOf(what string, texts ...string) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "leasekeeper %s", what)
	for _, text := range texts {
		fmt.Fprintf(h, " %q", text)
	}
	return max(2, binary.BigEndian.Uint64(h.Sum(nil)))
}

// findSelf finds the server's own name in the list.
func (p *groupPlan) findSelf(name, advertise string) error {
	i := slices.IndexFunc(p.members, func(m plannedMember) bool { return m.name == name })
	if i < 0 {
		var names []string
		for _, m := range p.members {
			names = append(names, m.name)
		}
		return wrongUsage("the name %s is not in initial-cluster: say with --name which of them this server is: %s", name, strings.Join(names, ", "))
	}
	p.self = p.members[i]
	if advertise != "" && advertise != p.self.address {
		return wrongUsage("peer-advertise is %s, and initial-cluster has %s for %s: the others go by that, so make them the same", advertise, p.self.address, name)
	}
	return nil
}

func (p *groupPlan) readTimes(g groupSettings) (err error) {
	for _, f := range []struct {
		key, text   string
		least, most time.Duration
		field       *time.Duration
	}{
		{"election-timeout", g.electionTimeout, minElection, maxElection, &p.election},
		{"master-lease", g.masterLease, minLease, maxElection, &p.lease},
		{"read-timeout", g.patience, minPatience, maxElection, &p.patience},
	} {
		if *f.field, err = time.ParseDuration(f.text); err != nil || *f.field < f.least || *f.field > f.most {
			return wrongUsage("%s is %q: write a duration between %v and %v", f.key, f.text, f.least, f.most)
		}
	}
	p.drift, err = parseDrift(g.drift)
	return err
}

// parseDrift reads a share in per cent.
func parseDrift(text string) (clock.Drift, error) {
	percent, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	ppm := math.Ceil(percent * 10_000)
	if err != nil || !strings.HasSuffix(text, "%") || !(ppm >= 1 && percent <= maxDriftPercent) {
		return 0, wrongUsage("clock-drift is %q: write how far any clock may be from the true rate, such as 1%% or 0.5%%, and at most %d%%", text, maxDriftPercent)
	}
	return clock.Drift(ppm), nil
}

// warn tells what is allowed and still hardly meant.
func (p *groupPlan) warn(log *slog.Logger) {
	n := len(p.members)
	if n%2 == 0 {
		log.Warn("an even number of members survives no more failures than one less: name one more, or one less", "members", n, "may fail", (n-1)/2)
	}
	if n > usualGroup {
		log.Warn("so many members make every change slower: three or five are usual", "members", n)
	}
	if p.lease > p.election {
		log.Warn("the members' promise lasts longer than the election timeout, so a failover takes longer by the difference: "+
			"make --master-lease shorter than --election-timeout", "master-lease", p.lease, "election-timeout", p.election)
	}
	if isLoopback(p.listen) && !isLoopback(p.self.address) {
		log.Warn("the other members are told an address on which this one does not listen: say with --peer-listen where it should, such as 0.0.0.0:2380",
			"peer-listen", p.listen, "initial-cluster", p.self.address)
	}
}

// isLoopback says whether only programs on this machine reach an address. A name is not looked up.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// scheme is what stands before the addresses of members.
func (p *groupPlan) scheme() string {
	if p.tls[0] != "" {
		return "https://"
	}
	return "http://"
}
