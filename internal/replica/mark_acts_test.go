package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// While a member does not record replaced marks, they are replaced and nobody records them. Then all members have the record,
// exactly if the mark was replaced.
func TestReplacedMarkIsRecordedOnceAllMembersKnowTheAct(t *testing.T) {
	g, leader := newTeamWithAccess(t)
	root := access.Caller{User: access.Root}
	for i, c := range []access.Command{
		access.AddRole{Name: "a"}, access.GrantRight{Role: "a", Right: access.Right{Prefix: "n", Rights: access.Administer}}, access.GrantRole{User: "u", Role: "a"},
	} {
		if r := g.order(leader, uint64(1+i), Request{ID: uint64(1 + i), Command: c, Caller: root}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	g.pass(time.Second)
	before := len(g.acts(leader))
	id := uint64(10)
	replace := func(user string, revision int64, value string) (now int64, done bool, err error) {
		t.Helper()
		id++
		by := access.Caller{User: user, Revision: g.members[leader].replica.Access().Load().Revision(), Origin: access.Origin{Address: "10.0.0.1"}}
		r := g.order(leader, id, Request{ID: id, Caller: by, Command: keyspace.TxnRequest{
			Compare: []keyspace.Compare{{Target: keyspace.CompareMod, Key: record.MarkKey("n"), Number: revision}},
			Success: []keyspace.TxnOp{keyspace.PutRequest{Key: record.MarkKey("n"), Value: []byte(value)}},
		}})
		result, _ := r.Result.(keyspace.TxnResult)
		return r.Header.Revision, result.Succeeded, r.Err
	}

	g.of(g.follower(leader), gate.Access)
	g.pass(time.Second)
	revision, done, err := replace("u", 0, "0 1")
	if !done || err != nil {
		t.Fatalf("while a member is older: %v, %v", done, err)
	}
	g.rewrite = nil
	g.pass(time.Second)
	if n, in := len(g.acts(leader)), g.members[leader].replica.Versions().InUse; n != before || in != gate.Access {
		t.Errorf("while a member is older: %d records, not %d, and version %d is in use", n, before, in)
	}

	if _, done, err := replace("u", 0, "0 2"); done || err != nil {
		t.Errorf("the condition does not hold: %v, %v", done, err)
	}
	if _, _, err := replace("v", revision, "0 2"); err != access.ErrPermissionDenied {
		t.Errorf("by a user without the right: %v", err)
	}
	if _, done, err := replace("u", revision, "0 3"); !done || err != nil {
		t.Errorf("the condition holds: %v, %v", done, err)
	}
	g.pass(time.Second)
	all := g.acts(leader)
	if len(all) != before+1 || all[before].Act != (audit.Act{Name: "name.set-mark", Object: "n, tick 3"}) || all[before].By.User != "u" || all[before].By.Origin.Address != "10.0.0.1" {
		t.Errorf("the leader has %+v", all)
	}
	for _, m := range g.ids {
		if got := g.acts(m); !slices.Equal(got, all) {
			t.Errorf("member %d has %+v, and the leader %+v", m, got, all)
		}
	}
	for _, m := range g.ids {
		g.crash(m, 0)
	}
	g.pass(5 * time.Second)
	for _, m := range g.ids {
		if got := g.acts(m); !slices.Equal(got, all) {
			t.Errorf("after a crash member %d has %+v, and before %+v", m, got, all)
		}
	}
	g.states(gate.State{Cluster: gate.Newest, InUse: gate.MarkActs})
	g.same()
}

// acts returns the audit log of a member.
func (g *team) acts(member uint64) []audit.Record {
	g.t.Helper()
	page, err := audit.Read(g.members[member].replica.db, audit.Query{Limit: audit.MaxRecords, Bytes: audit.MaxBytes})
	if err != nil {
		g.t.Fatal(err)
	}
	return page.Records
}
