package settings

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// discovery are the settings of --discovery-srv, as the user wrote them.
type discovery struct {
	domain string // --discovery-srv
	suffix string // --discovery-srv-name
}

var discoverySettings = []setting{
	{"discovery-srv", "", "find the members in DNS instead of --initial-cluster: the SRV records _etcd-server._tcp of this `domain`, or _etcd-server-ssl._tcp with --peer-cert; a member's name is then its host", func(s *Server) *string { return &s.discovery.domain }},
	{"discovery-srv-name", "", "a `suffix` of the service in these records: _etcd-server-SUFFIX._tcp", func(s *Server) *string { return &s.discovery.suffix }},
}

// lookupLimit bounds how long the records are looked for.
const lookupLimit = 15 * time.Second

// lookupSRV has the signature of [net.Resolver.LookupSRV].
type lookupSRV func(ctx context.Context, service, proto, domain string) (string, []*net.SRV, error)

// Discover replaces --discovery-srv by the members that DNS has, and the name of this server by its host's. The
// records are those that etcd reads. hostname returns the name of this machine, by which the server finds itself if
// --peer-advertise does not say where it is. Without --discovery-srv, Discover does nothing.
func (s *Server) Discover(ctx context.Context, lookup lookupSRV, hostname func() (string, error)) error {
	d := s.discovery
	switch {
	case d.domain == "" && d.suffix != "":
		return command.WrongUsage("discovery-srv-name is given without --discovery-srv: give the domain too, or omit it")
	case d.domain == "":
		return nil
	case s.clusterSettings.initialCluster != "":
		return command.WrongUsage("discovery-srv and initial-cluster are both given: either DNS lists the members, or you do")
	case s.Name != defaultName:
		return command.WrongUsage("name is %s, but with --discovery-srv a member's name is its host, so that all members know it: omit --name", s.Name)
	}
	service := "etcd-server"
	if s.clusterSettings.cert != "" {
		service += "-ssl"
	}
	if d.suffix != "" {
		service += "-" + d.suffix
	}
	limited, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	_, records, err := lookup(limited, service, "tcp", d.domain)
	if err != nil {
		return fmt.Errorf("cannot find the members in DNS: %w: add an SRV record _%s._tcp.%s for each member, or list the members with --initial-cluster", err, service, d.domain)
	}
	members := membersIn(records)
	self, err := s.findInDNS(members, hostname)
	if err != nil {
		return err
	}
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = m.Name + "=" + m.Address
	}
	s.Name = self.Name
	s.clusterSettings.initialCluster = strings.Join(list, ",")
	return nil
}

// membersIn returns the members that records name, in order of addresses, without IDs. A member's name is its host, or
// its address if two members are on one host. So it does not depend on the order or the weights of the records.
func membersIn(records []*net.SRV) []Member {
	members := make([]Member, 0, len(records))
	hosts := make(map[string]int)
	for _, r := range records {
		host := strings.ToLower(strings.TrimSuffix(r.Target, "."))
		address := net.JoinHostPort(host, strconv.Itoa(int(r.Port)))
		if slices.ContainsFunc(members, func(m Member) bool { return m.Address == address }) {
			continue
		}
		members = append(members, Member{Name: host, Address: address})
		hosts[host]++
	}
	for i, m := range members {
		if hosts[m.Name] > 1 {
			members[i].Name = m.Address
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Address, b.Address) })
	return members
}

// findInDNS returns this server among the members.
func (s *Server) findInDNS(members []Member, hostname func() (string, error)) (Member, error) {
	addresses := make([]string, len(members))
	for i, m := range members {
		addresses[i] = m.Address
	}
	known := strings.Join(addresses, ", ")
	if own := strings.ToLower(s.clusterSettings.advertise); own != "" {
		if i := slices.Index(addresses, own); i >= 0 {
			s.clusterSettings.advertise = own
			return members[i], nil
		}
		return Member{}, command.WrongUsage("peer-advertise is %s, but DNS has the members %s: use one of them", own, known)
	}
	host, err := hostname()
	if err != nil {
		return Member{}, command.WrongUsage("cannot read the name of this machine: %v: say which of %s this server is with --peer-advertise", err, known)
	}
	var found []Member
	for _, m := range members {
		if name, _, _ := net.SplitHostPort(m.Address); isHost(name, strings.ToLower(host)) {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		return Member{}, command.WrongUsage("this machine is called %s, which is %d of the members that DNS has (%s): say which one this server is with --peer-advertise", host, len(found), known)
	}
	return found[0], nil
}

// isHost reports whether a host in DNS has a machine's name, which may be its first label only.
func isHost(inDNS, machine string) bool {
	first, _, _ := strings.Cut(inDNS, ".")
	return inDNS == machine || !strings.Contains(machine, ".") && first == machine
}
