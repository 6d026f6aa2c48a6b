package settings

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
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/server"
)

// clusterSettings are the settings of a member of a cluster, as the user wrote them.
type clusterSettings struct {
	initialCluster            string
	listen, advertise         string
	cert, key, ca             string
	insecure                  string
	masterLease, drift        string
	electionTimeout, patience string
}

var clusterSettingsKnown = []setting{
	{"initial-cluster", "", "all `members` of the cluster, including this one, as a=host:port,b=host:port,c=host:port, with the addresses at which members reach each other; the same on every member and at every start (default: a server without a cluster)", func(s *Server) *string { return &s.clusterSettings.initialCluster }},
	{"peer-listen", "127.0.0.1:2380", "`host:port` to serve the other members on", func(s *Server) *string { return &s.clusterSettings.listen }},
	{"peer-advertise", "", "`host:port` at which the other members reach this one; must equal its address in --initial-cluster (default: that address)", func(s *Server) *string { return &s.clusterSettings.advertise }},
	{"peer-cert", "", "`file` with the certificate to show to other members (PEM); members then speak TLS only", func(s *Server) *string { return &s.clusterSettings.cert }},
	{"peer-key", "", "`file` with the certificate's key", func(s *Server) *string { return &s.clusterSettings.key }},
	{"peer-ca", "", "`file` with the certificate authorities that members' certificates must come from", func(s *Server) *string { return &s.clusterSettings.ca }},
	{"insecure-peers", "false", "allow --client-ca although members are connected without TLS: anyone who reaches the members' port can then read and change everything without a certificate", func(s *Server) *string { return &s.clusterSettings.insecure }},
	{"master-lease", "900ms", "the `duration` for which members promise a leader not to elect another one, so that it can answer from memory", func(s *Server) *string { return &s.clusterSettings.masterLease }},
	{"clock-drift", "1%", "the largest `deviation` of any member's clock rate from real time", func(s *Server) *string { return &s.clusterSettings.drift }},
	{"election-timeout", "1s", "the `duration` without a leader after which members elect one", func(s *Server) *string { return &s.clusterSettings.electionTimeout }},
	{"read-timeout", "1s", "the `duration` that a request waits for a leader, or for the leader to confirm that it still leads", func(s *Server) *string { return &s.clusterSettings.patience }},
}

const (
	// maxMembers is the largest number of members of a cluster. The leader sends each change to all of them.
	maxMembers = 9
	// usefulMembers is the number of members above which the server warns.
	usefulMembers = 7
	// The bounds of an election timeout. Members check the time ten times a second.
	minElection, maxElection = 300 * time.Millisecond, time.Minute
	minLease                 = 100 * time.Millisecond
	minPatience              = 50 * time.Millisecond
	maxDriftPercent          = 10
)

// Cluster is the parsed configuration of a member of a cluster.
type Cluster struct {
	Members  []Member      // in order of names
	Self     Member        // this server
	ID       uint64        // of the cluster; the same on all members
	Listen   string        // the address to serve other members on
	TLS      [3]string     // certificate, key, authority
	Insecure bool          // allow --client-ca although members are connected without TLS
	Lease    time.Duration // --master-lease
	Drift    clock.Drift
	Election time.Duration // --election-timeout
	Patience time.Duration // --read-timeout
}

// Member is one member of a cluster.
type Member struct {
	Name, Address string
	ID            uint64 // derived from the names of all members
}

// Cluster parses the settings of a member of a cluster. It returns nil if the server is not in a cluster.
func (s Server) Cluster() (*Cluster, error) {
	g := s.clusterSettings
	if g.initialCluster == "" {
		for _, alone := range []struct{ key, value string }{
			{"peer-advertise", g.advertise}, {"peer-cert", g.cert}, {"peer-key", g.key}, {"peer-ca", g.ca},
			{"insecure-peers", strings.TrimPrefix(g.insecure, "false")},
		} {
			if alone.value != "" {
				return nil, command.WrongUsage("%s is given without --initial-cluster: list all members of the cluster with --initial-cluster, or omit %[1]s", alone.key)
			}
		}
		return nil, nil
	}
	members, err := parseMembers(g.initialCluster)
	if err != nil {
		return nil, err
	}
	p := &Cluster{Members: members, ID: clusterID(members), Listen: g.listen, TLS: [3]string{g.cert, g.key, g.ca}}
	if err := p.findSelf(s.Name, g.advertise); err != nil {
		return nil, err
	}
	if given := len(strings.Join(p.TLS[:], "")); given > 0 && slices.Contains(p.TLS[:], "") {
		return nil, command.WrongUsage("peer-cert, peer-key and peer-ca belong together: give all three for TLS between members, or none")
	}
	if _, _, err := net.SplitHostPort(p.Listen); err != nil {
		return nil, command.WrongUsage("peer-listen is %q: write host:port, such as 0.0.0.0:2380", p.Listen)
	}
	if p.Insecure, err = strconv.ParseBool(g.insecure); err != nil {
		return nil, command.WrongUsage("insecure-peers is %q: write true or false", g.insecure)
	}
	if s.ClientCA != "" && p.TLS[0] == "" && !p.Insecure && !isLoopback(p.Listen) {
		return nil, command.WrongUsage("%v", server.ErrOpenPeers)
	}
	return p, p.readTimes(g)
}

// parseMembers parses --initial-cluster. It returns the members in order of names.
func parseMembers(list string) ([]Member, error) {
	var members []Member
	names, addresses := make(map[string]bool), make(map[string]string)
	for entry := range strings.SplitSeq(list, ",") {
		name, address, found := strings.Cut(strings.TrimSpace(entry), "=")
		if !found || name == "" {
			return nil, command.WrongUsage("%q in initial-cluster names no member: write NAME=HOST:PORT for each member, separated by commas", entry)
		}
		if strings.Contains(address, "://") {
			return nil, command.WrongUsage("the address of %s in initial-cluster is %q: write HOST:PORT without http://; members speak TLS if --peer-cert is set", name, address)
		}
		host, port, err := net.SplitHostPort(address)
		if n, numberErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || numberErr != nil || n == 0 {
			return nil, command.WrongUsage("the address of %s in initial-cluster is %q: write HOST:PORT, such as 10.0.0.7:2380", name, address)
		}
		if names[name] {
			return nil, command.WrongUsage("initial-cluster names %s twice: give each member a different name", name)
		}
		if other, taken := addresses[address]; taken {
			return nil, command.WrongUsage("%s and %s have the same address %s in initial-cluster: give each member its own", other, name, address)
		}
		names[name], addresses[address] = true, name
		members = append(members, Member{Name: name, Address: address})
	}
	switch {
	case len(members) == 1:
		return nil, command.WrongUsage("initial-cluster has only one member: list three, or omit it for a single server")
	case len(members) > maxMembers:
		return nil, command.WrongUsage("initial-cluster has %d members, more than %d: list three or five", len(members), maxMembers)
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	all := make([]string, len(members))
	for i, m := range members {
		all[i] = m.Name
	}
	for i, m := range members {
		members[i].ID = hashOf("member", append(all, m.Name)...)
	}
	return members, nil
}

// clusterID derives the id of the cluster from the names of its members. It does not depend on addresses, so that
// members with data can move to other addresses.
func clusterID(members []Member) uint64 {
	var all []string
	for _, m := range members {
		all = append(all, m.Name)
	}
	return hashOf("cluster", all...)
}

// hashOf returns an id above 1 that depends on what and texts.
func hashOf(what string, texts ...string) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "leasekeeper %s", what)
	for _, text := range texts {
		fmt.Fprintf(h, " %q", text)
	}
	return max(2, binary.BigEndian.Uint64(h.Sum(nil)))
}

// findSelf sets Self to the member with this server's name.
func (p *Cluster) findSelf(name, advertise string) error {
	i := slices.IndexFunc(p.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		var names []string
		for _, m := range p.Members {
			names = append(names, m.Name)
		}
		return command.WrongUsage("the name %s is not in initial-cluster: set --name to this server's name, which is one of %s", name, strings.Join(names, ", "))
	}
	p.Self = p.Members[i]
	if advertise != "" && advertise != p.Self.Address {
		return command.WrongUsage("peer-advertise is %s, but initial-cluster has %s for %s, which the other members use: make them the same", advertise, p.Self.Address, name)
	}
	return nil
}

// readTimes parses the durations and the clock drift.
func (p *Cluster) readTimes(g clusterSettings) (err error) {
	for _, f := range []struct {
		key, text   string
		least, most time.Duration
		field       *time.Duration
	}{
		{"election-timeout", g.electionTimeout, minElection, maxElection, &p.Election},
		{"master-lease", g.masterLease, minLease, maxElection, &p.Lease},
		{"read-timeout", g.patience, minPatience, maxElection, &p.Patience},
	} {
		if *f.field, err = time.ParseDuration(f.text); err != nil || *f.field < f.least || *f.field > f.most {
			return command.WrongUsage("%s is %q: write a duration between %v and %v", f.key, f.text, f.least, f.most)
		}
	}
	p.Drift, err = parseDrift(g.drift)
	return err
}

// parseDrift parses a percentage.
func parseDrift(text string) (clock.Drift, error) {
	percent, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	ppm := math.Ceil(percent * 10_000)
	if err != nil || !strings.HasSuffix(text, "%") || !(ppm >= 1 && percent <= maxDriftPercent) {
		return 0, command.WrongUsage("clock-drift is %q: write how far the rate of any clock may be from real time, such as 1%% or 0.5%%, and at most %d%%", text, maxDriftPercent)
	}
	return clock.Drift(ppm), nil
}

// Warn logs a warning for each setting that is allowed but probably a mistake.
func (p *Cluster) Warn(log *slog.Logger) {
	n := len(p.Members)
	if n%2 == 0 {
		log.Warn("an even number of members survives no more failures than one member fewer: add or remove one", "members", n, "may_fail", (n-1)/2)
	}
	if n > usefulMembers {
		log.Warn("every member makes changes slower: use three or five unless you need more", "members", n)
	}
	if p.Lease > p.Election {
		log.Warn("the members' promise lasts longer than the election timeout, which delays every failover by the difference: "+
			"make --master-lease shorter than --election-timeout", "master-lease", p.Lease, "election-timeout", p.Election)
	}
	if isLoopback(p.Listen) && !isLoopback(p.Self.Address) {
		log.Warn("other members connect to an address on which this one does not listen: set --peer-listen, for example to 0.0.0.0:2380",
			"peer-listen", p.Listen, "initial-cluster", p.Self.Address)
	}
}

// isLoopback reports whether only programs on this machine can reach an address. It looks up no host names.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Scheme returns the prefix of the addresses of members.
func (p *Cluster) Scheme() string {
	if p.TLS[0] != "" {
		return "https://"
	}
	return "http://"
}
