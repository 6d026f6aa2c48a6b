package settings

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// planOf parses flags and returns the configuration of the cluster.
func planOf(t *testing.T, args ...string) (*Cluster, error) {
	t.Helper()
	return settingsOf(t, args...).Cluster()
}

// settingsOf parses flags.
func settingsOf(t *testing.T, args ...string) Server {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	RegisterServer(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	s, err := LoadServer(flags, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const three = "a=10.0.0.1:2380,b=10.0.0.2:2380,c=10.0.0.3:2380"

func TestInvalidClusterSettingsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"peer-ca is given without --initial-cluster":   {"--peer-ca", "x"},
		`"b" in initial-cluster names no member`:       {"--initial-cluster", "a=h:1,b"},
		"https://h:1 is not http://":                   {"--initial-cluster", "a=https://h:1,b=h:2"},
		`the address of b in initial-cluster is "h"`:   {"--initial-cluster", "a=h:1,b=h"},
		`the address of b in initial-cluster is "h:0"`: {"--initial-cluster", "a=h:1,b=h:0"},
		"names a twice":                                                    {"--initial-cluster", "a=h:1,a=h:2"},
		"a and b have the same address h:1":                                {"--initial-cluster", "a=h:1,b=h:1"},
		"a and b have the same address H:01":                               {"--initial-cluster", "a=h:1,b=H:01"},
		"http://h:1 is not https://":                                       {"--join", "http://h:1", "--peer-cert", "x", "--peer-key", "y", "--peer-ca", "z"},
		"join and initial-cluster are both given":                          {"--initial-cluster", three, "--join", "h:1"},
		`initial-cluster-state is "x": write new`:                          {"--initial-cluster", three, "--initial-cluster-state", "x"},
		"existing without the members of that cluster":                     {"--initial-cluster-state", "existing", "--peer-advertise", "h:1"},
		"initial-cluster-state is given without":                           {"--initial-cluster-state", "existing"},
		"has only this server, which cannot join itself":                   {"--initial-cluster", "a=h:1", "--initial-cluster-state", "existing", "--name", "a"},
		"set --peer-advertise HOST:PORT, the address with":                 {"--join", "h:1", "--peer-listen", "0.0.0.0:2380"},
		`peer-advertise is "h": write HOST:PORT`:                           {"--peer-advertise", "h"},
		`"h" in join is no address`:                                        {"--join", "h:1,h"},
		"join has only this server's own address h:1":                      {"--join", "h:1", "--peer-advertise", "h:1"},
		"join has only this server's own address h:1:":                     {"--join", "H.:01", "--peer-advertise", "h:1"},
		"has 10 members, more than 9":                                      {"--initial-cluster", "a=h:1,b=h:2,c=h:3,d=h:4,e=h:5,f=h:6,g=h:7,h=h:8,i=h:9,j=h:10"},
		"the name default is not in initial-cluster":                       {"--initial-cluster", three},
		"which is one of a, b, c":                                          {"--initial-cluster", three, "--name", "d"},
		"peer-advertise is 10.0.0.9:1":                                     {"--initial-cluster", three, "--name", "a", "--peer-advertise", "10.0.0.9:1"},
		"peer-cert, peer-key and peer-ca belong together":                  {"--initial-cluster", three, "--name", "a", "--peer-cert", "x", "--peer-key", "y"},
		`peer-listen is "x"`:                                               {"--initial-cluster", three, "--name", "a", "--peer-listen", "x"},
		`election-timeout is "1": write a duration`:                        {"--initial-cluster", three, "--name", "a", "--election-timeout", "1"},
		`election-timeout is "10ms": write a duration`:                     {"--initial-cluster", three, "--name", "a", "--election-timeout", "10ms"},
		`master-lease is "1h": write a duration`:                           {"--initial-cluster", three, "--name", "a", "--master-lease", "1h"},
		`read-timeout is "0s": write a duration`:                           {"--initial-cluster", three, "--name", "a", "--read-timeout", "0s"},
		`clock-drift is "1": write how far`:                                {"--initial-cluster", three, "--name", "a", "--clock-drift", "1"},
		`clock-drift is "0%": write how far`:                               {"--initial-cluster", three, "--name", "a", "--clock-drift", "0%"},
		`clock-drift is "NaN%": write how far`:                             {"--initial-cluster", three, "--name", "a", "--clock-drift", "NaN%"},
		`clock-drift is "11%": write how far the rate of any clock may be`: {"--initial-cluster", three, "--name", "a", "--clock-drift", "11%"},
	} {
		if _, err := planOf(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", args, err, want)
		}
	}
}

func TestMembersAgreeOnClusterAndMemberIDs(t *testing.T) {
	if p, err := planOf(t); p != nil || err != nil {
		t.Errorf("without a cluster: %+v, %v", p, err)
	}
	a, err := planOf(t, "--initial-cluster", three, "--name", "a", "--clock-drift", "0.25%", "--peer-advertise", "10.0.0.1:2380")
	if err != nil {
		t.Fatal(err)
	}
	if a.Lease != 900*time.Millisecond || a.Election != time.Second || a.Patience != time.Second || a.Drift != 2500 {
		t.Errorf("times: %+v", a)
	}
	// The order in the list does not matter, and all members agree.
	b, err := planOf(t, "--initial-cluster", " c=10.0.0.3:2380, b=10.0.0.2:2380,a=10.0.0.1:2380", "--name", "b")
	if err != nil {
		t.Fatal(err)
	}
	if a.ID != b.ID || a.Self.ID == b.Self.ID {
		t.Errorf("a is %x of %x, b is %x of %x", a.Self.ID, a.ID, b.Self.ID, b.ID)
	}
	for i := range a.Members {
		if a.Members[i] != b.Members[i] {
			t.Errorf("member %d is %+v for a, %+v for b", i, a.Members[i], b.Members[i])
		}
	}
	// Other names make another cluster. Other addresses do not.
	for list, same := range map[string]bool{
		"a=10.0.0.1:2380,b=10.0.0.2:2380,d=10.0.0.3:2380": false, "a=10.0.0.1:2380,b=10.0.0.2:2380,c=10.0.0.4:2380": true,
	} {
		other, err := planOf(t, "--initial-cluster", list, "--name", "a")
		if err != nil {
			t.Fatal(err)
		}
		if (other.ID == a.ID && other.Self.ID == a.Self.ID) != same {
			t.Errorf("%s is member %x of %x, and the first list %x of %x", list, other.Self.ID, other.ID, a.Self.ID, a.ID)
		}
	}
}

func TestServersThatJoinOrGrowHaveNoFounders(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		self string
		join string
	}{
		"a single server that can grow":  {[]string{"--peer-advertise", "h:1"}, "h:1", ""},
		"the same, as etcd writes it":    {[]string{"--initial-cluster", "default=http://h:1"}, "h:1", ""},
		"a server that joins":            {[]string{"--join", "h:1, http://h:2/", "--peer-advertise", "h:3"}, "h:3", "h:1 h:2"},
		"its own address in the list":    {[]string{"--join", "h:1,h:2,h:3", "--peer-advertise", "h:3"}, "h:3", "h:1 h:2"},
		"the address that it listens on": {[]string{"--join", "h:1", "--peer-listen", "10.0.0.7:2380"}, "10.0.0.7:2380", "h:1"},
	} {
		p, err := planOf(t, c.args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(p.Members) > 0 || p.Self.ID != 0 || p.ID != 0 || p.Self.Address != c.self || strings.Join(p.Join, " ") != c.join {
			t.Errorf("%s: %+v", name, p)
		}
	}
	p, err := planOf(t, "--initial-cluster", "a=http://h:1,b=http://h:2", "--name", "a")
	if err != nil || len(p.Members) != 2 || p.Self.Address != "h:1" {
		t.Errorf("founders with URLs: %+v, %v", p, err)
	}
	// A server without data joins. A server with data may be a founder, and then needs the ids that it was founded with.
	args := []string{"--initial-cluster", "a=http://h:1,b=http://h:2,c=http://h:3", "--name", "b"}
	founder, err := planOf(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	p, err = planOf(t, append(args, "--initial-cluster-state", "existing")...)
	if err != nil || p.ID != founder.ID || p.Self != founder.Self || !slices.Equal(p.Members, founder.Members) || strings.Join(p.Join, " ") != "h:1 h:3" {
		t.Errorf("as etcd writes it: %+v, %v; as a founder: %+v", p, err, founder)
	}
}

func TestClusterSettingsThatAreProbablyMistakesAreWarnedAbout(t *testing.T) {
	warnings := func(args ...string) string {
		t.Helper()
		p, err := planOf(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		p.Warn(slog.New(slog.NewTextHandler(&log, nil)))
		return log.String()
	}
	good := []string{"--initial-cluster", three, "--name", "a", "--peer-listen", "0.0.0.0:2380"}
	if got := warnings(good...); got != "" {
		t.Errorf("warned without reason: %s", got)
	}
	for want, args := range map[string][]string{
		"an even number":                          {"--initial-cluster", "a=10.0.0.1:1,b=10.0.0.2:1"},
		"every member makes changes slower":       {"--initial-cluster", "a=h:1,b=h:2,c=h:3,d=h:4,e=h:5,f=h:6,g=h:7,h=h:8,i=h:9"},
		"lasts longer than the election":          {"--master-lease", "2s"},
		"an address on which this one does not l": {"--peer-listen", "127.0.0.1:2380"},
	} {
		if got := warnings(append(good[:len(good):len(good)], args...)...); !strings.Contains(got, want) {
			t.Errorf("%q: %q; want %q", args, got, want)
		}
	}
}
