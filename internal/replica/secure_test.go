package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

const (
	plainURL  = "http://192.0.2.1:2380"
	secureURL = "https://192.0.2.1:2380"
)

// While access is enabled, no member gets a URL without TLS off the machine. Otherwise URLs do not matter.
func TestMembersWithoutTLSAreRefusedWhileAccessIsEnabled(t *testing.T) {
	g, leader := newTeamWithAccess(t)
	g.requests = 100 // ids above those of newTeamWithAccess
	root := access.Caller{User: access.Root, Revision: 1 << 20}
	for _, c := range []struct {
		kind    roster.Kind
		id      uint64
		url     string
		refused bool
	}{
		{roster.Add, 9, plainURL, true}, {roster.Add, 9, secureURL, false}, {roster.Update, 9, plainURL, true},
		{roster.Update, 9, "http://127.0.0.1:1", false}, {roster.Remove, 9, "", false},
	} {
		got := g.tryChange(c.kind, roster.Member{ID: c.id, Learner: true, PeerURLs: []string{c.url}}).Err
		if errors.Is(got, roster.ErrInsecure) != c.refused || !c.refused && got != nil {
			t.Errorf("%v with %s: %v", c.kind, c.url, got)
		}
	}
	if r := g.order(leader, 1, Request{ID: 1, Command: access.Disable{}, Caller: root}); r.Err != nil {
		t.Fatal(r.Err)
	}
	g.change(roster.Add, roster.Member{ID: 10, Learner: true, PeerURLs: []string{plainURL}})
	if r := g.order(leader, 2, Request{ID: 2, Command: access.Enable{}}); !errors.Is(r.Err, roster.ErrInsecure) {
		t.Errorf("access is enabled: %v", r.Err)
	}
	g.change(roster.Update, roster.Member{ID: 10, PeerURLs: []string{secureURL}})
	if r := g.order(leader, 3, Request{ID: 3, Command: access.Enable{}}); r.Err != nil {
		t.Error(r.Err)
	}
	g.same()
}

// If a member without TLS is to be added while access is being enabled, the log's order decides, and the other is refused. The
// leader has its authority again.
func TestEnablingAndInsecureMemberExcludeEachOther(t *testing.T) {
	enable := Request{ID: 1, Command: access.Enable{}}
	add := ChangeMembers{ID: 2, Change: roster.Change{Kind: roster.Add, Member: roster.Member{ID: 9, Learner: true, PeerURLs: []string{plainURL}}}}
	for what, events := range map[string][]Event{"access first": {enable, add}, "member first": {add, enable}} {
		g, leader := newTeamWithAccess(t)
		g.requests = 100 // ids above those of newTeamWithAccess
		g.order(leader, 3, Request{ID: 3, Command: access.Disable{}, Caller: access.Caller{User: access.Root, Revision: 1 << 20}})
		g.change(roster.Describe, roster.Member{ID: leader, Name: "a"}) // a list that all members have
		g.pass(time.Second)
		var effects []Effect // of two Steps, after which neither is applied
		for _, e := range events {
			effects = append(effects, g.members[leader].step(e)...)
		}
		g.perform(leader, effects)
		g.pass(time.Second)
		enabled, added := g.replyTo(leader, 1).(Reply).Err, g.replyTo(leader, 2).(Reply).Err
		first := what == "access first"
		if (enabled == nil) != first || (added == nil) == first || !errors.Is(errors.Join(enabled, added), roster.ErrInsecure) {
			t.Errorf("%s: access %v, member %v", what, enabled, added)
		}
		r := g.members[leader].replica
		if _, there := r.list().Member(9); there == first || r.Access().Load().Enabled() != first {
			t.Errorf("%s: the list is %v", what, r.list())
		}
		if !r.holder.Valid(g.members[leader].clock.Now()) {
			t.Errorf("%s: the leader has no authority", what)
		}
		g.same()
	}
}
