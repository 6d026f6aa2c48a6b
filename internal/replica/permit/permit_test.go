package permit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// table are leases in a test.
type table struct {
	claims map[lessor.ID][2]string // name, creator
	items  map[lessor.ID][]lessor.Item
	looks  int // calls of Items
}

func (l *table) Claim(id lessor.ID) (name, creator string, ok bool) {
	c, ok := l.claims[id]
	return c[0], c[1], ok
}

func (l *table) Items(id lessor.ID) []lessor.Item {
	l.looks++
	return l.items[id]
}

func (l *table) LeaseOf(item lessor.Item) lessor.ID {
	for id, items := range l.items {
		if slices.Contains(items, item) {
			return id
		}
	}
	return lessor.NoLease
}

// leases has a lease of etcd's API with keys, one without, and a claim of a user.
func leases() *table {
	return &table{
		claims: map[lessor.ID][2]string{3: {"n/1", "holder"}},
		items:  map[lessor.ID][]lessor.Item{1: {{Key: "a/1"}, {Key: "b/1"}}, 3: {{Key: "n/1/3"}}},
	}
}

// commands are the commands of the transcript by name.
var commands = map[string]entry.Command{
	"put a":                keyspace.PutRequest{Key: []byte("a/1")},
	"put a, show it":       keyspace.PutRequest{Key: []byte("a/1"), PrevKV: true},
	"attach to 1":          keyspace.PutRequest{Key: []byte("a/2"), Lease: 1},
	"attach to 2":          keyspace.PutRequest{Key: []byte("a/2"), Lease: 2},
	"attach to claim":      keyspace.PutRequest{Key: []byte("a/2"), Lease: 3},
	"delete a":             keyspace.DeleteRequest{Key: []byte("a/"), End: []byte("a0")},
	"delete a, show it":    keyspace.DeleteRequest{Key: []byte("a/"), End: []byte("a0"), PrevKV: true},
	"delete a to c":        keyspace.DeleteRequest{Key: []byte("a/"), End: []byte("c0")},
	"compare b, put a":     keyspace.TxnRequest{Compare: []keyspace.Compare{{Key: []byte("b/1")}}, Success: []keyspace.TxnOp{keyspace.PutRequest{Key: []byte("a/1")}}},
	"compare range":        keyspace.TxnRequest{Compare: []keyspace.Compare{{Key: []byte("a/"), End: []byte("c0")}}},
	"else read b":          keyspace.TxnRequest{Failure: []keyspace.TxnOp{keyspace.RangeRequest{Key: []byte("b/1")}}},
	"then read b":          keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.RangeRequest{Key: []byte("b/1")}}},
	"nested delete of b":   keyspace.TxnRequest{Failure: []keyspace.TxnOp{keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.DeleteRequest{Key: []byte("b/1")}}}}},
	"grant":                entry.Grant{Lease: 9, TTL: time.Second},
	"revoke lease 1":       entry.Revoke{Lease: 1},
	"revoke lease 2":       entry.Revoke{Lease: 2},
	"revoke claim":         entry.Revoke{Lease: 3},
	"compact":              entry.Compact{Revision: 1},
	"expire":               entry.Expire{},
	"checkpoint":           entry.Checkpoint{},
	"claim n":              ownership.Claim{Name: "n/2", Lease: 4},
	"claim n again":        ownership.Claim{Name: "n/1", Lease: 3},
	"claim m":              ownership.Claim{Name: "m", Lease: 4},
	"claim m by n's lease": ownership.Claim{Name: "m", Lease: 3},
	"release n":            ownership.Release{Name: "n/1", Lease: 3},
	"release nothing":      ownership.Release{Name: "n/1", Lease: 4},
	"release m":            ownership.Release{Name: "m", Lease: 4},
	"finish n":             ownership.Finish{Name: "n/1", Lease: 3},
	"raise mark of n":      ownership.RaiseMark{Name: "n/1", Lease: 3},
	"transfer n":           ownership.Transfer{Name: "n/1", Lease: 3},
	"prefer":               ownership.Prefer{Name: "n/1", Lease: 3},
	"revoke n":             ownership.Revoke{Name: "n/1"},
	"pin n":                ownership.Pin{Name: "n/1"},
	"unpin n":              ownership.Unpin{Name: "n/1"},
	"login":                access.Login{User: "x"},
	"add user":             access.AddUser{Name: "x"},
	"disable access":       access.Disable{},
}

// policy has users that are called by what they may do.
func policy(t testing.TB) *access.Policy {
	var p *access.Policy
	apply := func(c access.Command) {
		next, err := p.Apply(c)
		if err != nil {
			t.Fatalf("%T%v: %v", c, c, err)
		}
		p = next
	}
	for user, role := range map[string][]access.Command{ // order: the policy is the same in the end, but for its revisions
		"nobody":     {},
		"reader":     {permission(access.Read, "a/", "c0")},
		"writer":     {permission(access.Write, "a/", "c0")},
		"half":       {permission(access.ReadWrite, "a/", "a0")},
		"all":        {permission(access.ReadWrite, "a/", "c0")},
		"holder":     {right("n/", access.Hold), permission(access.ReadWrite, "a/", "a0")},
		"other":      {right("n/", access.Hold), permission(access.ReadWrite, "a/", "a0")},
		"watcher":    {right("", access.Watch)},
		"operator":   {right("n/", access.Administer)},
		access.Root:  nil,
		"also root":  nil,
		"withdrawn":  {},
		"everything": {permission(access.ReadWrite, "\x00", "\x00"), right("", access.AllRights)},
	} {
		apply(access.AddUser{Name: user})
		if role == nil {
			apply(access.GrantRole{User: user, Role: access.Root})
			continue
		}
		apply(access.AddRole{Name: user})
		for _, c := range role {
			switch c := c.(type) {
			case access.GrantPermission:
				c.Role = user
				apply(c)
			case access.GrantRight:
				c.Role = user
				apply(c)
			}
		}
		apply(access.GrantRole{User: user, Role: user})
	}
	apply(access.Enable{})
	return p
}

func permission(kind access.Kind, key, end string) access.Command {
	return access.GrantPermission{Permission: &access.Permission{Kind: kind, Key: key, End: end}}
}

func right(prefix string, rights access.Rights) access.Command {
	return access.GrantRight{Right: access.Right{Prefix: prefix, Rights: rights}}
}

// TestTranscripts shows who may have which command applied. The users are those of policy, the commands those above.
//
//	who COMMAND     the users that may
//	renew           who may renew each lease
func TestTranscripts(t *testing.T) {
	p := policy(t)
	transcript.Run(t, "nobody", func(*testing.T, string) transcript.Play {
		return func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			switch d.Cmd {
			case "who":
				for _, name := range slices.Sorted(maps.Keys(commands)) {
					fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(permitted(p, commands[name]), ", "))
				}
			case "renew":
				for _, id := range []lessor.ID{1, 2, 3, 4} {
					var users []string
					for _, u := range p.Users() {
						if new(Renewals).Check(p, u.Name, id, leases()) == nil {
							users = append(users, u.Name)
						}
					}
					fmt.Fprintf(&b, "lease %d: %s\n", id, strings.Join(users, ", "))
				}
			}
			return b.String()
		}
	})
}

// permitted returns the users that may have a command applied.
func permitted(p *access.Policy, c entry.Command) (users []string) {
	for _, u := range p.Users() {
		if Check(p, access.Caller{User: u.Name, Revision: p.Revision()}, c, leases()) == nil {
			users = append(users, u.Name)
		}
	}
	return users
}

// Nobody is refused every command of a client, and a user of an earlier revision every one that needs a permission. Access
// that is not enabled refuses nothing.
func TestCallersMustBeIdentified(t *testing.T) {
	p := policy(t)
	own := []string{"compact", "expire", "checkpoint", "login"}
	loose := append(own, "grant", "revoke lease 2", "add user", "disable access") // of these etcd does not compare the revision
	for name, c := range commands {                                               // order: each is tried alone
		if err := Check(p, access.Caller{}, c, leases()); (err == access.ErrUserEmpty) == slices.Contains(own, name) {
			t.Errorf("%s of nobody: %v", name, err)
		}
		old := access.Caller{User: "everything", Revision: p.Revision() - 1}
		if err := Check(p, old, c, leases()); !slices.Contains(loose, name) && err != access.ErrOldRevision {
			t.Errorf("%s of an earlier revision: %v", name, err)
		}
		for _, off := range []*access.Policy{nil, disabled(t, p)} {
			if err := Check(off, access.Caller{}, c, leases()); err != nil {
				t.Errorf("%s without access: %v", name, err)
			}
		}
	}
}

func disabled(t *testing.T, p *access.Policy) *access.Policy {
	off, err := p.Apply(access.Disable{})
	if err != nil {
		t.Fatal(err)
	}
	return off
}

// A command that this package was not taught is root's.
func TestUnknownCommandsNeedRoot(t *testing.T) {
	p := policy(t)
	if got := permitted(p, unknown{}); !slices.Equal(got, []string{"also root", access.Root}) {
		t.Errorf("permitted to %q", got)
	}
}

type unknown struct{}

func (unknown) Command() {}

// Whether a caller has the role root does not depend on the revision at which it was identified, as in etcd: root of an earlier
// one may use every lease.
func TestRootUsesLeasesAtAnEarlierRevision(t *testing.T) {
	p := policy(t)
	root := access.Caller{User: access.Root, Revision: p.Revision() - 1}
	for _, id := range []lessor.ID{1, 2, 3} {
		if err := Check(p, root, entry.Revoke{Lease: id}, leases()); err != nil {
			t.Errorf("lease %d: %v", id, err)
		}
	}
}

// Without access, renewals cost no memory.
func TestRenewalsRememberNothingWithoutAccess(t *testing.T) {
	r := new(Renewals)
	for _, off := range []*access.Policy{nil, disabled(t, policy(t))} {
		if err := r.Check(off, "all", 1, leases()); err != nil || len(r.known) > 0 {
			t.Errorf("%d are remembered: %v", len(r.known), err)
		}
	}
}

// A permission is remembered until the policy or the keys change, and a refusal until the policy changes or the key that refused
// leaves the lease.
func TestRenewalsRemember(t *testing.T) {
	p, l, r := policy(t), leases(), new(Renewals)
	check := func(user string, want error, looks int) {
		t.Helper()
		before := l.looks
		if err := r.Check(p, user, 1, l); err != want || l.looks != before+looks {
			t.Errorf("%s: %v with %d looks", user, err, l.looks-before)
		}
	}
	check("all", nil, 1)
	check("all", nil, 0)
	if !r.Knows(p, "all", 1) || r.Knows(p, "half", 1) || r.Knows(p, "all", 2) || r.Knows(p, "", 4) || r.Knows(disabled(t, p), "all", 1) {
		t.Error("what is remembered is not one user under one policy and one lease")
	}
	check("half", access.ErrPermissionDenied, 1)
	check("half", access.ErrPermissionDenied, 0)
	check("all", nil, 0)
	l.items[1] = l.items[1][:1]
	check("half", nil, 1)
	l.items[1] = l.items[1][:2]
	r.Forget(1)
	check("half", access.ErrPermissionDenied, 0)
	check("all", nil, 1)
	check("writer", nil, 1) // one user is remembered
	check("all", nil, 1)
	l.items[1] = append(l.items[1], lessor.Item{Key: "d"})
	r.Forget(1)
	check("all", access.ErrPermissionDenied, 1)
	check("all", access.ErrPermissionDenied, 0)
	l.items[1] = l.items[1][:2]
	check("all", nil, 1)
	next, err := p.Apply(access.RevokeRole{User: "all", Role: "all"})
	if err != nil {
		t.Fatal(err)
	}
	p = next
	check("all", access.ErrPermissionDenied, 1)
	if p, err = p.Apply(access.DeleteUser{Name: "all"}); err != nil {
		t.Fatal(err)
	}
	check("all", access.ErrPermissionDenied, 0)
	check("", access.ErrUserEmpty, 0)
	if err := r.Check(p, "", lessor.NoLease, l); err != nil {
		t.Errorf("a member cannot learn whether a leader answers: %v", err)
	}
}

// The memory of what is remembered is bounded.
func TestRenewalsAreBounded(t *testing.T) {
	p, l, r := policy(t), leases(), new(Renewals)
	r.policy, r.known = p, make(map[lessor.ID]string, maxRemembered)
	for id := range lessor.ID(maxRemembered) {
		r.known[id+100] = "all"
	}
	if err := r.Check(p, "all", 1, l); err != nil || len(r.known) > maxRemembered {
		t.Errorf("%d are remembered: %v", len(r.known), err)
	}
	r.refused = make(map[renewal]lessor.Item, maxRefused)
	for id := range lessor.ID(maxRefused) {
		r.refused[renewal{id + 100, "half"}] = lessor.Item{Key: "b/1"}
	}
	if err := r.Check(p, "half", 1, l); err != access.ErrPermissionDenied || len(r.refused) > maxRefused {
		t.Errorf("%d refusals are remembered: %v", len(r.refused), err)
	}
}

// A mark that is replaced by its name needs the right over the name, and none over the key. The same transaction of a client
// needs the permission for the key.
func TestReplacedMarkNeedsTheRightOverTheName(t *testing.T) {
	p := policy(t)
	key := []byte(backend.MarkPrefix + "n/1")
	mark := keyspace.TxnRequest{Compare: []keyspace.Compare{{Key: key}}, Success: []keyspace.TxnOp{keyspace.DeleteRequest{Key: key}}}
	for user, want := range map[string]struct{ byName, byKey error }{
		"operator":   {nil, access.ErrPermissionDenied},
		"holder":     {access.ErrPermissionDenied, access.ErrPermissionDenied},
		"everything": {nil, nil},
	} {
		by := access.Caller{User: user, Revision: p.Revision()}
		if err := Check(p, by, mark, leases()); err != want.byKey {
			t.Errorf("%s, by the key: %v, not %v", user, err, want.byKey)
		}
		by.Origin.Address = "10.0.0.1"
		if err := Check(p, by, mark, leases()); err != want.byName {
			t.Errorf("%s, by the name: %v, not %v", user, err, want.byName)
		}
	}
}
