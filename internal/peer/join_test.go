package peer

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// joining is a process that may join the cluster of a member, at an address that was added.
func joining(g *cluster, ask ...uint64) Joining {
	j := Joining{Address: "127.0.0.1:9", Drift: clock.DefaultDrift, MasterLease: time.Second, Patience: time.Nanosecond}
	for _, id := range ask {
		j.Ask = append(j.Ask, g.members[id])
	}
	return j
}

// inviting starts a member in whose list there is one that has not started, at joining's address.
func (g *cluster) inviting(id uint64, change func(*Config, *member)) *member {
	m := g.start(id, func(c *Config, m *member) {
		c.Drift, c.MasterLease = clock.DefaultDrift, time.Second
		if change != nil {
			change(c, m)
		}
	})
	m.SetMembers(append(g.listed(id), roster.Member{ID: 99, PeerURLs: []string{"http://127.0.0.1:9"}, Learner: true}))
	return m
}

func TestProcessLearnsWhichMemberItIs(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	g.inviting(1, only(g, 1))
	j := joining(g, 2, 1)                                         // one that does not answer, too
	for _, address := range []string{j.Address, "127.0.0.1:09"} { // the same in another spelling
		j.Address = address
		joined, err := Join(within(t), j)
		if err != nil {
			t.Fatal(err)
		}
		if joined.ClusterID != testCluster || joined.MemberID != 99 || len(joined.Members) != 2 || !joined.Members[1].Learner ||
			joined.Members[0].PeerURLs[0] != "http://"+g.members[1] {
			t.Errorf("joined %+v", joined)
		}
	}
}

func TestProcessThatCannotJoinIsToldWhatToDo(t *testing.T) {
	for want, change := range map[string]func(*Joining, *cluster, *member){
		"add it with leasekeeper member add": func(j *Joining, _ *cluster, _ *member) { j.Address = "127.0.0.1:8" },
		"give it the same":                   func(j *Joining, _ *cluster, _ *member) { j.MasterLease++ },
		"a --clock-drift of 1% and a --master-lease of 1s, and this server 2%": func(j *Joining, _ *cluster, _ *member) { j.Drift *= 2 },
		"is not the address of a member":                                       func(j *Joining, _ *cluster, _ *member) { j.Address = "x" },
		"if it is lost, remove the member and add it again":                    func(j *Joining, g *cluster, _ *member) { j.Address = g.members[1] },
		"give each its own": func(j *Joining, g *cluster, a *member) {
			a.SetMembers(append(g.listed(1), roster.Member{ID: 98, PeerURLs: []string{"http://127.0.0.1:9"}}, roster.Member{ID: 99, PeerURLs: []string{"https://127.0.0.1:9"}}))
		},
		"with another data directory": func(j *Joining, g *cluster, a *member) {
			a.SetMembers(append(g.listed(1), roster.Member{ID: 99, Incarnation: 5, PeerURLs: []string{"127.0.0.1:9"}}))
		},
	} {
		t.Run(want, func(t *testing.T) {
			g := newCluster(t, 1)
			a := g.inviting(1, nil)
			j := joining(g, 1)
			change(&j, g, a)
			if _, err := Join(within(t), j); !errors.Is(err, ErrNotInvited) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		})
	}
}

// A member that has not heard of the newest change says that there is no such member. So the process asks again.
func TestProcessIsPatientWithALaggingMember(t *testing.T) {
	g := newCluster(t, 1)
	a := g.inviting(1, nil)
	a.SetMembers(g.listed(1))
	j := joining(g, 1)
	j.Patience = patience
	type outcome struct {
		joined Joined
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		joined, err := Join(within(t), j)
		done <- outcome{joined, err}
	}()
	a.SetMembers(append(g.listed(1), roster.Member{ID: 99, PeerURLs: []string{"127.0.0.1:9"}}))
	if o := <-done; o.err != nil || o.joined.MemberID != 99 {
		t.Errorf("joined %+v: %v", o.joined, o.err)
	}
}

// Founders, and the members that a process was told of when it joined, may have started already. So a member that knows only
// these tells no process that it is one of them.
func TestMemberWithoutAListInvitesNobody(t *testing.T) {
	g := newCluster(t, 1)
	var listed atomic.Bool
	g.inviting(1, func(c *Config, _ *member) { c.Listed = listed.Load })
	if _, err := Join(within(t), joining(g, 1)); !errors.Is(err, ErrNotInvited) || !strings.Contains(err.Error(), "a founder starts with --initial-cluster") {
		t.Errorf("without a list: %v", err)
	}
	listed.Store(true)
	if joined, err := Join(within(t), joining(g, 1)); err != nil || joined.MemberID != 99 {
		t.Errorf("with a list: %+v, %v", joined, err)
	}
}

// Of two members that contradict each other, one lags. The process waits until it has caught up.
func TestProcessWaitsForMembersThatDisagree(t *testing.T) {
	for what, stale := range map[string]roster.Member{
		"another id":             {ID: 98, PeerURLs: []string{"127.0.0.1:9"}},
		"another data directory": {ID: 98, Incarnation: 5, PeerURLs: []string{"127.0.0.1:9"}},
	} {
		t.Run(what, func(t *testing.T) {
			g := newCluster(t, 1, 2)
			g.inviting(1, only(g, 1))
			lags := g.inviting(2, only(g, 2))
			lags.SetMembers(append(g.listed(2), stale))
			if _, err := Join(within(t), joining(g, 1, 2)); !errors.Is(err, ErrNotInvited) || !strings.Contains(err.Error(), "the members disagree") {
				t.Errorf("they disagree: %v", err)
			}
			for _, ask := range [][]uint64{{1, 2}, {2}} {
				lags.SetMembers(append(g.listed(2), stale))
				j := joining(g, ask...)
				j.Patience = patience
				type outcome struct {
					joined Joined
					err    error
				}
				done := make(chan outcome, 1)
				go func() {
					joined, err := Join(within(t), j)
					done <- outcome{joined, err}
				}()
				if what == "another id" && len(ask) == 1 { // nobody contradicts it
					if o := <-done; o.err != nil || o.joined.MemberID != 98 {
						t.Errorf("by %d: %+v, %v", ask, o.joined, o.err)
					}
					continue
				}
				lags.SetMembers(append(g.listed(2), roster.Member{ID: 99, PeerURLs: []string{"127.0.0.1:9"}}))
				if o := <-done; o.err != nil || o.joined.MemberID != 99 {
					t.Errorf("by %d: %+v, %v", ask, o.joined, o.err)
				}
			}
		})
	}
}

func TestMembersThatDoNotAnswerAreNamed(t *testing.T) {
	g := newCluster(t, 1)
	g.listeners[1].Close()
	_, err := Join(within(t), joining(g, 1))
	if !errors.Is(err, ErrNotInvited) || !strings.Contains(err.Error(), g.members[1]+": dial tcp") || !strings.Contains(err.Error(), "name the peer addresses of members that run") {
		t.Errorf("got %v", err)
	}
}

func TestMembersOfDifferentClustersAreNoticed(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.inviting(1, only(g, 1))
	g.inviting(2, func(c *Config, m *member) { only(g, 2)(c, m); c.ClusterID = 0xc2 })
	if _, err := Join(within(t), joining(g, 1, 2)); err == nil || !strings.Contains(err.Error(), "are of different clusters") {
		t.Errorf("got %v", err)
	}
}

func TestJoiningNeedsACertificateForItsAddress(t *testing.T) {
	ca, other := authority.New(t, "authority"), authority.New(t, "authority")
	for name, c := range map[string]struct {
		files CertificateFiles
		want  string // "": it joins
	}{
		"right":         {filesOf(t, ca, here, ca), ""},
		"another host":  {filesOf(t, ca, "elsewhere.example", ca), "is not for 127.0.0.1, the host of its peer address"},
		"no TLS":        {CertificateFiles{}, "it speaks TLS"},
		"another CA":    {filesOf(t, other, here, other), "unknown authority"},
		"not trusted":   {filesOf(t, other, here, ca), "unknown certificate authority"},
		"half of files": {CertificateFiles{Cert: "x"}, "belong together"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newCluster(t, 1)
			g.inviting(1, func(c *Config, _ *member) { c.Files = filesOf(t, ca, here, ca) })
			j := joining(g, 1)
			j.Files = c.files
			_, err := Join(within(t), j)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v does not say %q", err, c.want)
			}
		})
	}
}

func TestProgramThatIsTooOldCannotJoin(t *testing.T) {
	g := newCluster(t, 1)
	a := g.inviting(1, func(c *Config, _ *member) { c.InUse = func() gate.Version { return gate.Newest + 1 } })
	if _, err := Join(within(t), joining(g, 1)); err == nil || !strings.Contains(err.Error(), "this program is too old") {
		t.Errorf("got %v", err)
	}
	a.stop()
	other := grpc.NewServer() // a server that does not know the question
	l := listen(t)
	g.members[1] = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- other.Serve(l) }()
	if _, err := Join(within(t), joining(g, 1)); err == nil || !strings.Contains(err.Error(), "upgrade all members first") {
		t.Errorf("got %v", err)
	}
	other.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
