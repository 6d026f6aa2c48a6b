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
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/server"
)

// clusterSettings are the settings of a member of a cluster, as the user wrote them.
type clusterSettings struct {
	initialCluster, state     string
	join                      string
	listen, advertise         string
	cert, key, ca, crl        string
	insecure                  string
	masterLease, drift        string
	electionTimeout, patience string
}

var clusterSettingsKnown = []setting{
	{"initial-cluster", "", "the `members` that found a cluster, including this one, as a=host:port,b=host:port,c=host:port, with the addresses at which members reach each other; the same on every member, until the members change (default: a server without a cluster)", func(s *Server) *string { return &s.clusterSettings.initialCluster }},
	{"initial-cluster-state", "new", "new, or existing `state`: with existing, a server with an empty data directory joins the cluster of the other members in --initial-cluster, as with --join; a server with data ignores this", func(s *Server) *string { return &s.clusterSettings.state }},
	{"join", "", "peer `addresses` of members, as host:port,host:port: a server with an empty data directory joins their cluster, to which it was added; from then on it ignores this; a founder starts with --initial-cluster and not with this", func(s *Server) *string { return &s.clusterSettings.join }},
	{"peer-listen", "127.0.0.1:2380", "`host:port` to serve the other members on", func(s *Server) *string { return &s.clusterSettings.listen }},
	{"peer-advertise", "", "`host:port` at which the other members reach this one; alone it makes a cluster of one, which can grow (default: the address in --initial-cluster; with --join that of --peer-listen)", func(s *Server) *string { return &s.clusterSettings.advertise }},
	{"peer-cert", "", "`file` with the certificate to show to other members (PEM); members then speak TLS only", func(s *Server) *string { return &s.clusterSettings.cert }},
	{"peer-key", "", "`file` with the certificate's key", func(s *Server) *string { return &s.clusterSettings.key }},
	{"peer-ca", "", "`file` with the certificate authorities that members' certificates must come from", func(s *Server) *string { return &s.clusterSettings.ca }},
	{"peer-crl", "", "`file` with lists of revoked certificates (PEM), signed by authorities in --peer-ca: refuse members with one of them", func(s *Server) *string { return &s.clusterSettings.crl }},
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
	// Members are those that found the cluster, in order of names. With Join, the server founded it with them if it has data,
	// and joins it if it has none. None: this server is the only founder, or joins.
	Members     []Member
	Join        []string      // the addresses of members, if a server with an empty data directory joins a cluster
	Self        Member        // this server; it has an ID if there are Members
	ID          uint64        // of the cluster that Members found; the same on all of them
	Listen      string        // the address to serve other members on
	Connections int           // the largest number of connections that other members may open to this one
	TLS         [3]string     // certificate, key, authority
	CRL         string        // the file of revoked certificates; "" for none
	Insecure    bool          // allow --client-ca although members are connected without TLS
	Lease       time.Duration // --master-lease
	Drift       clock.Drift
	Election    time.Duration // --election-timeout
	Patience    time.Duration // --read-timeout
}

// Member is one member of a cluster.
type Member struct {
	Name, Address string
	ID            uint64 // derived from the names of all members
}

// Cluster parses the settings of a member of a cluster. It returns nil if the server is not in a cluster.
func (s Server) Cluster() (*Cluster, error) {
	g := s.clusterSettings
	if !g.given() {
		return nil, g.refuseAlone()
	}
	shares, err := shareFiles(ReadFileLimit(), node.DefaultMaxOpenFiles, true)
	if err != nil {
		return nil, err
	}
	p := &Cluster{Listen: g.listen, Connections: shares.peers, TLS: [3]string{g.cert, g.key, g.ca}, CRL: g.crl}
	if given := len(strings.Join(p.TLS[:], "")); given > 0 && slices.Contains(p.TLS[:], "") {
		return nil, command.WrongUsage("peer-cert, peer-key and peer-ca belong together: give all three for TLS between members, or none")
	}
	if p.CRL != "" && p.TLS[0] == "" {
		return nil, command.WrongUsage("peer-crl needs peer-cert, peer-key and peer-ca: without TLS no member shows a certificate")
	}
	if _, _, err := net.SplitHostPort(p.Listen); err != nil {
		return nil, command.WrongUsage("peer-listen is %q: write host:port, such as 0.0.0.0:2380", p.Listen)
	}
	if err := p.findMembers(s.Name, g); err != nil {
		return nil, err
	}
	if p.Insecure, err = strconv.ParseBool(g.insecure); err != nil {
		return nil, command.WrongUsage("insecure-peers is %q: write true or false", g.insecure)
	}
	if s.ClientCA != "" && p.TLS[0] == "" && !p.Insecure && !isLoopback(p.Listen) {
		return nil, command.WrongUsage("%v", server.ErrOpenPeers)
	}
	return p, p.readTimes(g)
}

// given reports whether the settings make the server a member of a cluster.
func (g clusterSettings) given() bool {
	return g.initialCluster != "" || g.join != "" || g.advertise != ""
}

// refuseAlone returns an error if a setting is given that only a member of a cluster has.
func (g clusterSettings) refuseAlone() error {
	for _, alone := range []struct{ key, value string }{
		{"peer-cert", g.cert}, {"peer-key", g.key}, {"peer-ca", g.ca}, {"peer-crl", g.crl},
		{"insecure-peers", strings.TrimPrefix(g.insecure, "false")}, {"initial-cluster-state", strings.TrimPrefix(g.state, "new")},
	} {
		if alone.value != "" {
			return command.WrongUsage("%s is given without --initial-cluster, --join or --peer-advertise: a server needs one of them to be in a cluster; or omit %[1]s", alone.key)
		}
	}
	return nil
}

// findMembers sets the members that found the cluster, or that this server asks to join, and this server.
func (p *Cluster) findMembers(name string, g clusterSettings) (err error) {
	switch {
	case g.state != "new" && g.state != "existing":
		return command.WrongUsage("initial-cluster-state is %q: write new to found a cluster, or existing to join one", g.state)
	case g.join != "" && g.initialCluster != "":
		return command.WrongUsage("join and initial-cluster are both given: a server founds a cluster or joins one; give join alone, or initial-cluster with --initial-cluster-state existing")
	case g.state == "existing" && g.initialCluster == "" && g.join == "":
		return command.WrongUsage("initial-cluster-state is existing without the members of that cluster: list them with --initial-cluster, or give --join")
	case g.initialCluster == "":
		return p.joinOrFound(name, g)
	}
	if p.Members, err = p.parseMembers(g.initialCluster); err != nil {
		return err
	}
	p.ID = clusterID(p.Members)
	if err := p.findSelf(name, g.advertise); err != nil {
		return err
	}
	if g.state == "existing" {
		for _, m := range p.Members {
			if m != p.Self {
				p.Join = append(p.Join, m.Address)
			}
		}
		if len(p.Join) == 0 {
			return command.WrongUsage("initial-cluster has only this server, which cannot join itself: list the members of the cluster too")
		}
	}
	if len(p.Members) == 1 { // the ids are in the data directory
		p.Members, p.Self.ID, p.ID = nil, 0, 0
	}
	return nil
}

// joinOrFound is for a server without --initial-cluster: it joins the cluster of the members in --join, or is the only
// founder of one.
func (p *Cluster) joinOrFound(name string, g clusterSettings) error {
	p.Self = Member{Name: name, Address: g.advertise}
	if p.Self.Address == "" {
		p.Self.Address = p.Listen
		if host, _, _ := net.SplitHostPort(p.Listen); host == "" || net.ParseIP(host).IsUnspecified() {
			return command.WrongUsage("peer-listen is %s, which does not say where the other members reach this server: set --peer-advertise HOST:PORT, the address with which it was added", p.Listen)
		}
	}
	if !isAddress(p.Self.Address) {
		return command.WrongUsage("peer-advertise is %q: write HOST:PORT, such as 10.0.0.7:2380", p.Self.Address)
	}
	if g.join == "" {
		return nil
	}
	for entry := range strings.SplitSeq(g.join, ",") {
		address, err := p.withoutScheme(strings.TrimSpace(entry))
		if err != nil {
			return err
		}
		if !isAddress(address) {
			return command.WrongUsage("%q in join is no address: write HOST:PORT of members, separated by commas", address)
		}
		if roster.Address(address) != roster.Address(p.Self.Address) {
			p.Join = append(p.Join, address)
		}
	}
	if len(p.Join) == 0 {
		return command.WrongUsage("join has only this server's own address %s: name members of the cluster", p.Self.Address)
	}
	return nil
}

// isAddress reports whether text is HOST:PORT with a port that others can connect to.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	n, numberErr := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && numberErr == nil && n != 0
}

// withoutScheme returns the address of a peer URL. It refuses a scheme that members with these certificates do not speak.
func (p *Cluster) withoutScheme(url string) (string, error) {
	if address, ok := strings.CutPrefix(url, p.Scheme()); ok {
		return strings.TrimSuffix(address, "/"), nil
	}
	if scheme, _, found := strings.Cut(url, "://"); found {
		return "", command.WrongUsage("%s is not %s: members speak TLS if --peer-cert is set, and only then (%s is given): write HOST:PORT, or %[2]sHOST:PORT", url, p.Scheme(), scheme)
	}
	return url, nil
}

// parseMembers parses --initial-cluster. It returns the members in order of names.
func (p *Cluster) parseMembers(list string) ([]Member, error) {
	var members []Member
	names, addresses := make(map[string]bool), make(map[string]string)
	for entry := range strings.SplitSeq(list, ",") {
		name, address, found := strings.Cut(strings.TrimSpace(entry), "=")
		if !found || name == "" {
			return nil, command.WrongUsage("%q in initial-cluster names no member: write NAME=HOST:PORT for each member, separated by commas", entry)
		}
		address, err := p.withoutScheme(address)
		if err != nil {
			return nil, err
		}
		if !isAddress(address) {
			return nil, command.WrongUsage("the address of %s in initial-cluster is %q: write HOST:PORT, such as 10.0.0.7:2380", name, address)
		}
		if names[name] {
			return nil, command.WrongUsage("initial-cluster names %s twice: give each member a different name", name)
		}
		place := roster.Address(address)
		if other, taken := addresses[place]; taken {
			return nil, command.WrongUsage("%s and %s have the same address %s in initial-cluster: give each member its own", other, name, address)
		}
		names[name], addresses[place] = true, name
		members = append(members, Member{Name: name, Address: address})
	}
	if len(members) > maxMembers {
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
	if len(p.Join) > 0 {
		n = 0 // the cluster has other members than these, or will have
	}
	if n%2 == 0 && n > 0 {
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
			"peer-listen", p.Listen, "address", p.Self.Address)
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
