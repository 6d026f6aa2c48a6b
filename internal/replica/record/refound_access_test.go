package record

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// putEntry writes a log entry with commands.
func putEntry(t *testing.T, b *pebble.Batch, index uint64, commands ...*logpb.Command) {
	t.Helper()
	data, err := proto.Marshal(&logpb.Entry{Sequence: index, Commands: commands, WallMs: 9, Needs: 5})
	if err != nil {
		t.Fatal(err)
	}
	Put(b, LogKey(index), &raftpb.Entry{Index: new(index), Term: new(uint64(4)), Data: data})
}

// readEntry reads what putEntry wrote.
func readEntry(t *testing.T, db *pebble.DB, index uint64) *logpb.Entry {
	t.Helper()
	e, m := new(raftpb.Entry), new(logpb.Entry)
	found, err := Load(db, LogKey(index), e)
	if err == nil {
		err = proto.Unmarshal(e.GetData(), m)
	}
	if !found || err != nil || e.GetIndex() != index || e.GetTerm() != 4 {
		t.Fatalf("entry %d: %v, %v", index, e, err)
	}
	return m
}

var (
	enabling = &logpb.Command{
		Op:     &logpb.Command_Access{Access: &logpb.AccessChange{Change: &logpb.AccessChange_Enable_{Enable: new(logpb.AccessChange_Enable)}}},
		Caller: &logpb.Caller{User: []byte("root"), Revision: 3},
	}
	granting = &logpb.Command{Op: &logpb.Command_Grant{Grant: &logpb.Grant{Id: 7, TtlNs: 1e9}}}
	adding   = &logpb.Command{Op: &logpb.Command_Access{Access: &logpb.AccessChange{Change: &logpb.AccessChange_AddUser_{
		AddUser: &logpb.AccessChange_AddUser{Name: []byte("late")}}}}}
)

// refoundWith makes a database with a policy and two entries that are not applied yet, and refounds it.
func refoundWith(t *testing.T, policy *access.Policy, disable bool, last ...*logpb.Command) (*pebble.DB, Refounded) {
	t.Helper()
	db := openDatabase(t)
	if _, err := Identify(db, NewMember{ClusterID: 1, MemberID: 2}); err != nil {
		t.Fatal(err)
	}
	commitTo(t, db, func(b *pebble.Batch) {
		Put(b, KeyHardState, &raftpb.HardState{Term: new(uint64(4)), Commit: new(uint64(3))})
		Put(b, KeyApplied, &logpb.Applied{Index: 2, Term: 4})
		putEntry(t, b, 3, granting, adding)
		Put(b, LogKey(4), &raftpb.Entry{Index: new(uint64(4)), Term: new(uint64(4))}) // begins a leadership
		putEntry(t, b, 5, last...)
		PutPolicy(b, nil, policy)
	})
	r, err := Refound(db, Refounding{ClusterID: 3, MemberID: 4, Incarnation: 5, Now: 1 << 30, DisableAccess: disable})
	if err != nil {
		t.Fatal(err)
	}
	return db, r
}

// policyWith returns a policy with root, after further commands.
func policyWith(t *testing.T, more ...access.Command) (p *access.Policy) {
	t.Helper()
	for _, c := range append([]access.Command{access.AddUser{Name: access.Root, Hash: []byte("H")}, access.GrantRole{User: access.Root, Role: access.Root}}, more...) {
		next, err := p.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		p = next
	}
	return p
}

// Refound disables access if that is ordered, and keeps users and roles. A new auth revision ends the tokens.
func TestRefoundDisablesAccessWhenOrdered(t *testing.T) {
	enabled, disabled := policyWith(t, access.Enable{}), policyWith(t)
	for what, c := range map[string]struct {
		policy       *access.Policy
		order        bool
		is, reported bool // enabled; disabled by Refound
	}{
		"enabled":              {enabled, false, true, false},
		"enabled, ordered":     {enabled, true, false, true},
		"not enabled, ordered": {disabled, true, false, false},
		"no users, ordered":    {nil, true, false, false},
	} {
		db, r := refoundWith(t, c.policy, c.order, granting)
		got, err := LoadPolicy(db)
		if err != nil || got.Enabled() != c.is || r.AccessDisabled != c.reported || (got.User(access.Root) == nil) != (c.policy == nil) {
			t.Errorf("%s: %+v, %+v, %v", what, got, r, err)
		}
		if (got.Revision() > c.policy.Revision()) != c.reported || (r.InUse >= gate.Access) != c.reported {
			t.Errorf("%s: auth revision %d after %d, version %d in use", what, got.Revision(), c.policy.Revision(), r.InUse)
		}
	}
}

// A command that enables access, and was not applied before the data was refounded, does so no longer. The commands beside it
// keep their positions, and other entries stay as they are.
func TestRefoundVoidsPendingEnableOfAccess(t *testing.T) {
	all := []*logpb.Command{granting, enabling, adding, enabling}
	db, r := refoundWith(t, policyWith(t), true, all...)
	if !r.AccessDisabled || r.InUse < gate.Access {
		t.Errorf("refounded: %+v", r)
	}
	void := &logpb.Command{Op: &logpb.Command_Checkpoint{Checkpoint: new(logpb.Checkpoint)}}
	for index, want := range map[uint64][]*logpb.Command{3: {granting, adding}, 5: {granting, void, adding, void}} {
		if got := readEntry(t, db, index); !proto.Equal(got, &logpb.Entry{Sequence: index, Commands: want, WallMs: 9, Needs: 5}) {
			t.Errorf("entry %d: %v", index, got)
		}
	}
	db, r = refoundWith(t, policyWith(t), false, all...)
	if got := readEntry(t, db, 5); r.AccessDisabled || !proto.Equal(got, &logpb.Entry{Sequence: 5, Commands: all, WallMs: 9, Needs: 5}) {
		t.Errorf("without the order: %+v, %v", r, got)
	}
}

// An entry that cannot be read may enable access, so the data is refused.
func TestRefoundRefusesEntriesThatMayEnableAccess(t *testing.T) {
	db := openDatabase(t)
	if _, err := Identify(db, NewMember{ClusterID: 1, MemberID: 2}); err != nil {
		t.Fatal(err)
	}
	commitTo(t, db, func(b *pebble.Batch) {
		Put(b, KeyHardState, new(raftpb.HardState))
		Put(b, KeyApplied, &logpb.Applied{Index: 2, Term: 4})
		Put(b, LogKey(3), &raftpb.Entry{Index: new(uint64(3)), Term: new(uint64(4)), Data: []byte{0xff}})
	})
	if _, err := Refound(db, Refounding{ClusterID: 3, MemberID: 4, Incarnation: 5, Now: 1 << 30, DisableAccess: true}); !isDamage(err) {
		t.Errorf("%v", err)
	}
}
