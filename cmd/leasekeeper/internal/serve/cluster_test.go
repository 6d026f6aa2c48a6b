package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// A configuration that says something else than the cluster's list of members is logged, and does not decide.
func TestConfigurationThatDiffersFromTheListIsLogged(t *testing.T) {
	list := []roster.Member{{ID: 1, PeerURLs: []string{"http://h:1"}}, {ID: 2, PeerURLs: []string{"http://h:2"}}, {ID: 3}}
	member := func(addresses ...string) *settings.Cluster {
		p := &settings.Cluster{Self: settings.Member{Address: "h:1"}}
		for _, address := range addresses {
			p.Members = append(p.Members, settings.Member{Address: address})
		}
		return p
	}
	moved := member("h:2", "h:1")
	moved.Self.Address = "h:9"
	spelled := member("H:2", "h.:01")
	spelled.Self.Address = "H:1"
	for what, c := range map[string]struct {
		plan *settings.Cluster
		want string // "": nothing is logged
	}{
		"the same members": {member("h:2", "h:1"), ""},
		"other spellings":  {spelled, ""},
		"no founders":      {member(), ""},
		"former members":   {member("h:1", "h:4", "h:5"), "--initial-cluster is no longer used"},
		"another address":  {moved, "change it with leasekeeper member update"},
	} {
		var log bytes.Buffer
		m := &clusterMember{plan: c.plan, log: slog.New(slog.NewTextHandler(&log, nil))}
		if m.compare(1, list); c.want == "" && log.Len() > 0 || !strings.Contains(log.String(), c.want) || strings.Count(log.String(), "\n") > 1 {
			t.Errorf("%s: logged %q, and not %q", what, log.String(), c.want)
		}
	}
}
