package settings

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// zone is a DNS zone, by service and domain.
type zone map[string][]*net.SRV

func (z zone) lookup(_ context.Context, service, proto, domain string) (string, []*net.SRV, error) {
	records := z["_"+service+"._"+proto+"."+domain]
	if len(records) == 0 {
		return "", nil, &net.DNSError{Err: "no such host", Name: domain, IsNotFound: true}
	}
	return "", records, nil
}

var exampleZone = zone{
	"_etcd-server._tcp.example.org": {
		{Target: "C.example.org.", Port: 2380}, {Target: "a.example.org.", Port: 2380}, {Target: "b.example.org.", Port: 2380, Weight: 9},
		{Target: "a.example.org.", Port: 2380},
	},
	"_etcd-server-ssl._tcp.example.org":  {{Target: "s.example.org.", Port: 1}, {Target: "t.example.org.", Port: 1}},
	"_etcd-server-blue._tcp.example.org": {{Target: "localhost.", Port: 1}, {Target: "localhost.", Port: 2}, {Target: "other.", Port: 1}},
}

// discovered parses flags, looks for the members on a machine called host, and returns the settings.
func discovered(t *testing.T, host string, args ...string) (Server, error) {
	t.Helper()
	s := settingsOf(t, args...)
	err := s.Discover(t.Context(), exampleZone.lookup, func() (string, error) {
		if host == "" {
			return "", errors.New("nameless")
		}
		return host, nil
	})
	return s, err
}

func TestMembersAreFoundInDNS(t *testing.T) {
	for _, c := range []struct {
		host, args, self, members string
	}{
		{"b.example.org", "--discovery-srv example.org", "b.example.org", "a.example.org=a.example.org:2380,b.example.org=b.example.org:2380,c.example.org=c.example.org:2380"},
		{"C", "--discovery-srv example.org", "c.example.org", "a.example.org=a.example.org:2380,b.example.org=b.example.org:2380,c.example.org=c.example.org:2380"},
		{"", "--discovery-srv example.org --peer-advertise A.example.org:2380", "a.example.org", "a.example.org=a.example.org:2380,b.example.org=b.example.org:2380,c.example.org=c.example.org:2380"},
		{"t", "--discovery-srv example.org --peer-cert x --peer-key y --peer-ca z", "t.example.org", "s.example.org=s.example.org:1,t.example.org=t.example.org:1"},
		{"", "--discovery-srv example.org --discovery-srv-name blue --peer-advertise localhost:2", "localhost:2", "localhost:1=localhost:1,localhost:2=localhost:2,other=other:1"},
	} {
		s, err := discovered(t, c.host, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if s.Name != c.self || s.clusterSettings.initialCluster != c.members {
			t.Errorf("%s: %s of %s; want %s of %s", c.args, s.Name, s.clusterSettings.initialCluster, c.self, c.members)
		}
		plan, err := s.Cluster()
		if err != nil || plan.Self.Name != c.self {
			t.Errorf("%s: the cluster is %+v, %v", c.args, plan, err)
		}
	}
}

func TestNothingIsLookedUpWithoutDiscovery(t *testing.T) {
	s, err := discovered(t, "", "--name", "x")
	if err != nil || s.Name != "x" {
		t.Errorf("%s, %v", s.Name, err)
	}
}

func TestDiscoveryThatCannotWorkIsRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--discovery-srv-name x":                                       "without --discovery-srv",
		"--discovery-srv example.org --initial-cluster a=h:1,b=h:2":    "both given",
		"--discovery-srv example.org --name x":                         "omit --name",
		"--discovery-srv example.net":                                  "add an SRV record _etcd-server._tcp.example.net for each member",
		"--discovery-srv example.org":                                  "is 0 of the members that DNS has (a.example.org:2380, b.example.org:2380, c.example.org:2380)",
		"--discovery-srv example.org --discovery-srv-name blue":        "say which one this server is with --peer-advertise",
		"--discovery-srv example.org --peer-advertise d.example.org:1": "use one of them",
	} {
		if _, err := discovered(t, "localhost", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", args, err, want)
		}
	}
	if _, err := discovered(t, "", "--discovery-srv", "example.org"); err == nil || !strings.Contains(err.Error(), "nameless") {
		t.Error(err)
	}
}
