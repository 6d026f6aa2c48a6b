package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// as returns an event on behalf of a user, as a server with the present policy identifies it.
func (s *scene) as(user string, e Event) Event {
	by := access.Caller{User: user, Revision: s.world.replica.Access().Load().Revision()}
	switch e := e.(type) {
	case Request:
		e.Caller = by
		return e
	case Renewal:
		e.User = user
		return e
	}
	s.t.Fatalf("%T has no caller", e)
	return nil
}

// accessCommand reads a change of users and roles:
//
//	enable | disable | login USER REVISION
//	add-user NAME | delete-user NAME | password NAME HASH | grant-role USER ROLE | revoke-role USER ROLE
//	add-role NAME | delete-role NAME | grant ROLE read|write|readwrite KEY END | hold ROLE PREFIX | administer ROLE PREFIX
func accessCommand(t testing.TB, words []string) entry.Command {
	words = append(words, "", "", "", "")
	name, second := words[1], words[2]
	switch words[0] {
	case "enable":
		return access.Enable{}
	case "disable":
		return access.Disable{}
	case "login":
		c := access.Login{User: name, Digest: [32]byte{1}}
		if _, err := fmt.Sscan(second, &c.Revision); err != nil {
			t.Fatal(err)
		}
		return c
	case "add-user":
		return access.AddUser{Name: name, Hash: []byte("H")}
	case "delete-user":
		return access.DeleteUser{Name: name}
	case "password":
		return access.ChangePassword{Name: name, Hash: []byte(second)}
	case "grant-role":
		return access.GrantRole{User: name, Role: second}
	case "revoke-role":
		return access.RevokeRole{User: name, Role: second}
	case "add-role":
		return access.AddRole{Name: name}
	case "delete-role":
		return access.DeleteRole{Name: name}
	case "grant":
		kind := map[string]access.Kind{"read": access.Read, "write": access.Write, "readwrite": access.ReadWrite}[second]
		return access.GrantPermission{Role: name, Permission: &access.Permission{Kind: kind, Key: words[3], End: words[4]}}
	case "hold":
		return access.GrantRight{Role: name, Right: access.Right{Prefix: second, Rights: access.Hold}}
	case "administer":
		return access.GrantRight{Role: name, Right: access.Right{Prefix: second, Rights: access.Administer}}
	}
	t.Fatalf("unknown change %q", words)
	return nil
}

// showPolicy shows the records of a policy.
func showPolicy(p *access.Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", p.Rules())
	for _, u := range p.Users() {
		fmt.Fprintf(&b, "user %+v\n", *u)
	}
	for _, r := range p.Roles() {
		fmt.Fprintf(&b, "role %+v\n", *r)
	}
	return b.String()
}

// withAccess lets the only member, or the leader of a team, enable access: users u and v have the right to hold names
// that begin with n and to write keys that begin with k.
func withAccess(t testing.TB, do func(id uint64, c entry.Command, by access.Caller) Reply) {
	t.Helper()
	for i, line := range []string{
		"add-user root", "grant-role root root", "add-user u", "add-user v", "add-role r", "grant r readwrite k l", "hold r n",
		"grant-role u r", "grant-role v r", "enable",
	} {
		if reply := do(uint64(1<<40+i), accessCommand(t, strings.Fields(line)), access.Caller{}); reply.Err != nil {
			t.Fatalf("%s: %v", line, reply.Err)
		}
	}
}

// byUser sends a request of a user to a member of the team and returns the answer.
func (g *team) byUser(id, request uint64, user string, c entry.Command) Reply {
	g.t.Helper()
	by := access.Caller{User: user, Revision: g.members[id].replica.Access().Load().Revision()}
	return g.order(id, request, Request{ID: request, Command: c, Caller: by})
}

func newTeamWithAccess(t testing.TB) (g *team, leader uint64) {
	t.Helper()
	g = newTeam(t, 3)
	leader = g.elected()
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply {
		return g.order(leader, id, Request{ID: id, Command: c, Caller: by})
	})
	return g, leader
}

// All members have the policy, and it survives a crash of all.
func TestPolicyIsReplicatedAndKept(t *testing.T) {
	g, leader := newTeamWithAccess(t)
	g.pass(time.Second)
	want := showPolicy(g.members[leader].replica.Access().Load())
	if !strings.Contains(want, "Enabled:true") {
		t.Fatal(want)
	}
	for _, id := range g.ids {
		if got := showPolicy(g.members[id].replica.Access().Load()); got != want {
			t.Errorf("member %d has\n%s, the leader\n%s", id, got, want)
		}
	}
	for _, id := range g.ids {
		g.crash(id, 0)
	}
	g.pass(5 * time.Second)
	for _, id := range g.ids {
		if got := showPolicy(g.members[id].replica.Access().Load()); got != want {
			t.Errorf("member %d has\n%s after a crash, before\n%s", id, got, want)
		}
	}
	if got := g.members[g.elected()].replica.Versions().InUse; got != gate.Access {
		t.Errorf("version %d is in use", got)
	}
}

// A member that is of an earlier version would apply commands without a check, so there are none for it.
func TestAccessWaitsForEveryMember(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.of(g.follower(leader), gate.Members)
	g.pass(time.Second)
	if r := g.order(leader, 1, Request{ID: 1, Command: access.AddUser{Name: "root"}}); r.Err != ErrTooNew {
		t.Errorf("a user was added: %v", r.Err)
	}
	// A caller is no reason to refuse a command, as long as nobody checks it.
	if r := g.order(leader, 2, Request{ID: 2, Command: put1("k", "v"), Caller: access.Caller{User: "u", Revision: 1}}); r.Err != nil {
		t.Error(r.Err)
	}
	g.rewrite = nil
	g.pass(time.Second)
	if r := g.order(leader, 3, Request{ID: 3, Command: access.AddUser{Name: "root"}}); r.Err != nil {
		t.Error(r.Err)
	}
}

// A command that was proposed under a right is refused if the right is gone when it is applied.
func TestCommandsAreCheckedWhenTheyAreApplied(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply {
		return w.replyTo(id, append(w.step(Request{ID: id, Command: c, Caller: by}), w.settle()...))
	})
	revision := w.replica.Access().Load().Revision()
	root, user := access.Caller{User: "root", Revision: revision}, access.Caller{User: "u", Revision: revision}
	effects := append(w.step(
		Request{ID: 1, Command: access.RevokeRole{User: "u", Role: "r"}, Caller: root},
		Request{ID: 2, Command: put1("k", "v"), Caller: user},
		Request{ID: 3, Command: ownership.Claim{Name: "n", Lease: 7, TTL: time.Minute}, Caller: user},
		Request{ID: 4, Command: access.AddRole{Name: "other"}, Caller: root}, // as in etcd the revision of root does not matter
	), w.settle()...)
	for id, want := range map[uint64]error{1: nil, 2: access.ErrOldRevision, 3: access.ErrOldRevision, 4: nil} {
		if got := w.replyTo(id, effects).Err; got != want {
			t.Errorf("request %d: %v, want %v", id, got, want)
		}
	}
	if text := w.dump(); strings.Contains(text, "k=") || strings.Contains(text, "lease 7") {
		t.Errorf("a refused command changed the state:\n%s", text)
	}
}

// A reader on another goroutine that has seen a change of a key sees the policy of every change before it.
func TestPolicyIsPublishedBeforeLaterChanges(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply { return w.do(id, c) })
	store, policies := w.replica.Store(), w.replica.Access()
	for i := range 1000 {
		revision, policy := store.Revision(), policies.Load().Revision()
		seen := make(chan uint64)
		go func() {
			for store.Revision() == revision { // spins: the window of a wrong order is short
			}
			seen <- policies.Load().Revision()
		}()
		root := access.Caller{User: "root", Revision: policy + 1}
		w.step(Request{ID: uint64(2*i + 1), Command: accessCommand(t, []string{"add-role", fmt.Sprint(i)}), Caller: root},
			Request{ID: uint64(2*i + 2), Command: put1("k", "v"), Caller: root})
		w.settle()
		if got := <-seen; got != policy+1 {
			t.Fatalf("a reader sees a key of auth revision %d under the policy of %d", policy+1, got)
		}
	}
}

// A follower forwards renewals together with their user, and the leader decides.
func TestForwardedRenewalsCarryTheirUser(t *testing.T) {
	g, leader := newTeamWithAccess(t)
	follower := g.follower(leader)
	if r := g.byUser(leader, 1, "u", ownership.Claim{Name: "n", Lease: 7, TTL: time.Minute}); r.Err != nil {
		t.Fatal(r.Err)
	}
	g.pass(time.Second)
	for i, c := range []struct {
		user string
		want error
	}{{"u", nil}, {"v", access.ErrPermissionDenied}, {"root", nil}, {"", access.ErrUserEmpty}, {"nobody", access.ErrPermissionDenied}} {
		for _, member := range []uint64{leader, follower} {
			request := uint64(10*i) + 100 + member%10
			g.step(member, Renewal{ID: request, Leases: []lessor.ID{7}, User: c.user})
			g.pass(time.Second)
			renewed := g.replyTo(member, request).(Renewed)
			if got := renewed.Leases[0].Err; got != c.want {
				t.Errorf("renewal of %q through member %d: %v, want %v", c.user, member, got, c.want)
			}
		}
	}
}

// Members learn by renewals of their own that a leader answers. These are of no user.
func TestMembersAreReadyWhenAccessIsEnabled(t *testing.T) {
	g, _ := newTeamWithAccess(t)
	g.pass(10 * time.Second)
	for _, id := range g.ids {
		if w := g.members[id]; w.clock.Now().After(w.replica.Ready()) {
			t.Errorf("member %d was ready until %v, and it is %v", id, w.replica.Ready(), w.clock.Now())
		}
	}
}

// What is remembered of a renewal ends with the next change of the policy, and with the next key of the lease.
func TestRenewalsFollowPolicyAndKeys(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	id := uint64(1)
	as := func(user string, c entry.Command) {
		t.Helper()
		id++
		by := access.Caller{User: user, Revision: w.replica.Access().Load().Revision()}
		if r := w.replyTo(id, append(w.step(Request{ID: id, Command: c, Caller: by}), w.settle()...)); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply { return w.do(id, c) })
	renew := func(user string, want error) {
		t.Helper()
		id++
		effects := append(w.step(Renewal{ID: id, Leases: []lessor.ID{7}, User: user}), w.settle()...)
		for _, e := range effects {
			if renewed, ok := e.(Renewed); ok {
				if got := renewed.Leases[0].Err; got != want {
					t.Fatalf("renewal of %s: %v, want %v", user, got, want)
				}
				return
			}
		}
		t.Fatal("no answer")
	}
	as("u", entry.Grant{Lease: 7, TTL: time.Hour})
	renew("v", nil) // a lease without keys is anybody's
	as("u", keyspace.PutRequest{Key: []byte("k1"), Lease: 7})
	renew("u", nil)
	renew("v", nil)
	renew("u", nil)
	as("root", keyspace.PutRequest{Key: []byte("x"), Lease: 7})
	renew("u", access.ErrPermissionDenied)
	as("root", keyspace.DeleteRequest{Key: []byte("x")})
	renew("u", nil)
	as("root", access.RevokeRole{User: "u", Role: "r"})
	renew("u", access.ErrPermissionDenied)
	renew("v", nil)
	as("root", access.Disable{})
	renew("", nil)
}

// A claim belongs to the user that made it, also after a crash and for a repeated request.
func TestClaimsBelongToTheirCreator(t *testing.T) {
	w := newWorld(t).serve()
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply { return w.do(id, c) })
	id := uint64(1)
	try := func(user string, c entry.Command, want error) {
		t.Helper()
		id++
		by := access.Caller{User: user, Revision: w.replica.Access().Load().Revision()}
		if r := w.replyTo(id, append(w.step(Request{ID: id, Command: c, Caller: by}), w.settle()...)); r.Err != want {
			t.Errorf("%T of %s: %v, want %v", c, user, r.Err, want)
		}
	}
	claim := ownership.Claim{Name: "n", Lease: 7, TTL: time.Hour}
	try("u", claim, nil)
	for range 2 {
		try("u", claim, nil)
		try("v", claim, access.ErrPermissionDenied)
		try("root", claim, nil)
		try("v", ownership.RaiseMark{Name: "n", Lease: 7, Tick: "1"}, access.ErrPermissionDenied)
		try("v", ownership.Release{Name: "n", Lease: 7}, access.ErrPermissionDenied)
		try("v", ownership.Finish{Name: "n", Lease: 7}, access.ErrPermissionDenied)
		try("v", entry.Revoke{Lease: 7}, access.ErrPermissionDenied)
		try("u", ownership.Revoke{Name: "n"}, access.ErrPermissionDenied)
		try("u", ownership.Pin{Name: "n"}, access.ErrPermissionDenied)
		try("u", ownership.Claim{Name: "other", Lease: 8, TTL: time.Hour}, access.ErrPermissionDenied)
		try("u", keyspace.PutRequest{Key: []byte("k"), Lease: 7}, nil)
		try("v", keyspace.PutRequest{Key: []byte("k"), Lease: 7}, access.ErrPermissionDenied)
		next := w.crashed(nil)
		w.close()
		w = next
		w.start()
		w.serve()
	}
	defer func() { w.close() }()
	try("u", ownership.Release{Name: "n", Lease: 7}, nil)
	try("v", ownership.Claim{Name: "n", Lease: 9, TTL: time.Hour}, nil)
	try("root", access.DeleteRole{Name: "r"}, nil)
	try("v", ownership.Release{Name: "n", Lease: 9}, access.ErrPermissionDenied)
	try("root", ownership.Release{Name: "n", Lease: 9}, nil)
}

// A request for a claim in flight joins that of the same user only: the other would get an answer that it may not see.
func TestClaimOfAnotherUserDoesNotJoin(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply { return w.do(id, c) })
	revision := w.replica.Access().Load().Revision()
	claim := ownership.Claim{Name: "n", Lease: 7, TTL: time.Hour}
	effects := append(w.step(
		Request{ID: 1, Command: claim, Caller: access.Caller{User: "u", Revision: revision}},
		Request{ID: 2, Command: claim, Caller: access.Caller{User: "v", Revision: revision}},
		Request{ID: 3, Command: claim, Caller: access.Caller{User: "u", Revision: revision}},
	), w.settle()...)
	for id, want := range map[uint64]error{1: nil, 2: access.ErrPermissionDenied, 3: nil} {
		if got := w.replyTo(id, effects).Err; got != want {
			t.Errorf("request %d: %v, want %v", id, got, want)
		}
	}
}

// A member that gets the whole state gets the users, the roles and the creators of claims with it.
func TestStateContainsThePolicy(t *testing.T) {
	g, leader, laggard := newTeamWithLaggard(t, 1)
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply {
		return g.order(leader, id, Request{ID: id, Command: c, Caller: by})
	})
	if r := g.byUser(leader, 1<<32, "u", ownership.Claim{Name: "nobody-else", Lease: 7777, TTL: time.Hour}); r.Err != nil {
		t.Fatal(r.Err)
	}
	g.cut = func(Message) bool { return false }
	g.pass(time.Second)
	if g.members[laggard].installs == 0 {
		t.Fatal("no state was installed")
	}
	want, got := g.members[leader].replica, g.members[laggard].replica
	if a, b := showPolicy(want.Access().Load()), showPolicy(got.Access().Load()); a != b {
		t.Errorf("the leader has\n%s, the member that got the state\n%s", a, b)
	}
	if name, creator, ok := got.names.CreatorOf(7777); name != "nobody-else" || creator != "u" || !ok {
		t.Errorf("lease 7777 claims %q for %q", name, creator)
	}
	if !slices.Contains(got.names.Claims(), 7777) {
		t.Error("the claim is not there")
	}
}
