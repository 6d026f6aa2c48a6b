package audit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// claims are leases by which names are held, with who claimed them. Lease 6 was claimed while access was not enabled.
type claims struct{}

func (claims) Claim(id lessor.ID) (name, creator string, ok bool) {
	creator, ok = map[lessor.ID]string{3: "holder", 6: "", 7: "root"}[id]
	return "n", creator, ok
}

func (claims) Items(lessor.ID) []lessor.Item { return nil }
func (claims) LeaseOf(lessor.Item) lessor.ID { return lessor.NoLease }

// enabled is a policy in force with the users root and holder.
func enabled(t *testing.T) *access.Policy {
	t.Helper()
	var p *access.Policy
	for _, c := range []access.Command{
		access.AddUser{Name: access.Root}, access.GrantRole{User: access.Root, Role: access.Root}, access.AddUser{Name: "holder"}, access.Enable{},
	} {
		next, err := p.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		p = next
	}
	return p
}

// Each command of the log is an act, or is not, by what it does and by who requests it.
func TestActsAreForcedAndAdministrative(t *testing.T) {
	p := enabled(t)
	of := func(user string) access.Caller { return access.Caller{User: user, Revision: p.Revision()} }
	somebody := access.Caller{Origin: access.Origin{Address: "10.0.0.1"}}
	mark := record.MarkKey("n")
	for _, c := range []struct {
		command entry.Command
		by      access.Caller
		policy  *access.Policy
		want    string
	}{
		{access.AddUser{Name: "u", Hash: []byte("secret")}, access.Caller{}, nil, "user.add|u|"},
		{access.ChangePassword{Name: "u", Hash: []byte("secret")}, of("root"), p, "user.change-password|u|"},
		{access.DeleteUser{Name: "u"}, of("root"), p, "user.delete|u|"},
		{access.GrantRole{User: "u", Role: "r"}, of("root"), p, "user.grant-role|u, role r|"},
		{access.RevokeRole{User: "u", Role: "r"}, of("root"), p, "user.revoke-role|u, role r|"},
		{access.AddRole{Name: "r"}, of("root"), p, "role.add|r|"},
		{access.DeleteRole{Name: "r"}, of("root"), p, "role.delete|r|"},
		{access.GrantPermission{Role: "r", Permission: &access.Permission{Kind: access.ReadWrite, Key: "a\xff", End: "b"}}, of("root"), p, `role.grant-permission|r, readwrite "a\xff" to "b"|`},
		{access.GrantPermission{Role: "r", Permission: &access.Permission{Kind: access.Read, Key: "a", End: "\x00"}}, of("root"), p, `role.grant-permission|r, read from "a"|`},
		{access.GrantPermission{Role: "r", Permission: &access.Permission{Kind: access.Write, Key: "a"}}, of("root"), p, `role.grant-permission|r, write "a"|`},
		{access.GrantPermission{Role: "r", Permission: &access.Permission{Kind: 9, Key: "a"}}, of("root"), p, `role.grant-permission|r, kind 9 "a"|`},
		{access.GrantPermission{Role: "r"}, of("root"), p, "role.grant-permission|r|"},
		{access.RevokePermission{Role: "r", Key: "a"}, of("root"), p, `role.revoke-permission|r, "a"|`},
		{access.GrantRight{Role: "r", Right: access.Right{Prefix: "n/", Rights: access.Hold | access.Administer}}, of("root"), p, `role.grant-right|r, hold+administer "n/"|`},
		{access.GrantRight{Role: "r", Right: access.Right{Rights: 64}}, of("root"), p, `role.grant-right|r, rights 64 ""|`},
		{access.RevokeRight{Role: "r", Right: access.Right{Prefix: "n/", Rights: access.Watch}}, of("root"), p, `role.revoke-right|r, watch "n/"|`},
		{access.RevokeRight{Role: "r", Right: access.Right{Prefix: "n/"}}, of("root"), p, `role.revoke-right|r, rights 0 "n/"|`},
		{access.SetQuota{User: "u", Limits: []access.Limit{{Resource: access.Leases, Most: 5}, {Resource: access.Requests, Most: access.Inherit}}}, of("root"), p, `user.set-quota|u, leases 5, requests default|`},
		{access.SetQuota{Limits: []access.Limit{{Resource: access.Names, Most: access.Unlimited}}}, of("root"), p, `user.set-quota|all users, names none|`},
		{access.Enable{}, of("root"), nil, "access.enable||"},
		{access.Disable{}, of("root"), p, "access.disable||"},
		{access.Login{User: "u"}, of("u"), p, ""},

		{ownership.Revoke{Name: "n", Note: "stuck"}, somebody, nil, "name.revoke|n|stuck"},
		{ownership.Revoke{Name: "n", Note: "stuck"}, access.Caller{}, nil, ""},
		{ownership.Pin{Name: "n", Reason: "migration"}, somebody, nil, "name.pin|n|migration"},
		{ownership.Unpin{Name: "n"}, somebody, nil, "name.unpin|n|"},
		{ownership.Prefer{Name: "n", Lease: 4}, somebody, nil, "name.prefer|n, lease 4|"},
		{ownership.Transfer{Name: "n", Lease: 3}, somebody, nil, "name.transfer|n, lease 3|"},
		{ownership.Transfer{Name: "n", Lease: 3}, of("holder"), p, ""},
		{ownership.Transfer{Name: "n", Lease: 3}, of("root"), p, "name.transfer|n, lease 3|"},
		{ownership.Transfer{Name: "n", Lease: 6}, somebody, nil, "name.transfer|n, lease 6|"},
		{ownership.Transfer{Name: "n", Lease: 9}, somebody, p, "name.transfer|n, lease 9|"},
		{ownership.Release{Name: "n", Lease: 3}, of("root"), p, ""},
		{ownership.Claim{Name: "n", Lease: 5}, of("root"), p, ""},

		{entry.Revoke{Lease: 3}, of("root"), p, "lease.revoke|lease 3 of n, user holder|"},
		{entry.Revoke{Lease: 3}, of("holder"), p, ""},
		{entry.Revoke{Lease: 9}, of("root"), p, "lease.revoke|lease 9|"},
		{entry.Revoke{Lease: 9}, of("holder"), p, ""},
		{entry.Revoke{Lease: 7}, of("root"), p, ""},
		{entry.Revoke{Lease: 9}, somebody, nil, ""},
		{entry.Compact{Revision: 7}, somebody, nil, "compact|revision 7|"},
		{entry.Compact{Revision: 7}, access.Caller{}, nil, ""},
		{keyspace.PutRequest{Key: []byte("k")}, of("root"), p, ""},
		{replacing("n", keyspace.PutRequest{Key: mark, Value: []byte("0 5")}), somebody, nil, "name.set-mark|n, tick 5|"},
		{replacing("n", keyspace.PutRequest{Key: mark, Value: []byte("7 5")}), somebody, p, "name.set-mark|n, tick 5, token 7|"},
		{replacing("n", keyspace.DeleteRequest{Key: mark}), somebody, p, "name.unset-mark|n|"},
		{replacing("n", keyspace.DeleteRequest{Key: mark}), of("root"), p, ""},
		{keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.DeleteRequest{Key: mark}}}, somebody, p, ""},
	} {
		act, ok := Of(c.command, c.by, c.policy, claims{})
		got := ""
		if ok {
			got = act.Name + "|" + act.Object + "|" + act.Reason
		}
		if got != c.want {
			t.Errorf("%T%+v by %+v is %q, want %q", c.command, c.command, c.by, got, c.want)
		}
		if ok && !MayAct(c.by, c.command) {
			t.Errorf("%T is an act and its entry would not say so", c.command)
		}
	}
}

// replacing returns a transaction in the form in which the server replaces the mark of a name.
func replacing(name string, op keyspace.TxnOp) keyspace.TxnRequest {
	return keyspace.TxnRequest{Compare: []keyspace.Compare{{Target: keyspace.CompareMod, Key: record.MarkKey(name)}}, Success: []keyspace.TxnOp{op}}
}

// A refused act, and one whose conditions do not hold, is not carried out.
func TestActsAreCarriedOut(t *testing.T) {
	for _, c := range []struct {
		result any
		err    error
		want   bool
	}{
		{nil, nil, true}, {nil, errors.New("refused"), false}, {keyspace.TxnResult{Succeeded: true}, nil, true}, {keyspace.TxnResult{}, nil, false},
	} {
		if got := CarriedOut(c.result, c.err); got != c.want {
			t.Errorf("%+v, %v: %v", c.result, c.err, got)
		}
	}
}

func TestChangesOfMembersByClientsAreActs(t *testing.T) {
	for kind, want := range map[roster.Kind]string{
		roster.Add: "member.add|000000000000000a, http://a:1, learner", roster.Remove: "member.remove|000000000000000a, http://a:1",
		roster.Promote: "member.promote|000000000000000a, http://a:1", roster.Update: "member.update|000000000000000a, http://a:1",
		roster.Describe: "", roster.Bind: "",
	} {
		act, ok := OfMembers(roster.Change{Kind: kind, Member: roster.Member{ID: 10, PeerURLs: []string{"http://a:1"}, Learner: true}})
		got := ""
		if ok {
			got = act.Name + "|" + act.Object
		}
		if got != want {
			t.Errorf("%v is %q, want %q", kind, got, want)
		}
	}
}

func open(t *testing.T) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func appendTo(t *testing.T, db *pebble.DB, l *Log, records ...Record) {
	t.Helper()
	batch := db.NewBatch()
	for _, r := range records {
		l.Append(batch, r)
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, db *pebble.DB) (all []Record) {
	t.Helper()
	for q := (Query{Limit: 700, Bytes: 1 << 18}); ; {
		page, err := Read(db, q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Records...)
		if !page.More {
			return all
		}
		if page.After <= q.After {
			t.Fatalf("the page after %d ends at %d", q.After, page.After)
		}
		q.After = page.After
	}
}

// The log has the newest records within its bounds, whatever their sizes, and the same after it was read again. Small records
// reach the bound of their number first, and then greater ones that of the bytes.
func TestLogKeepsTheNewestWithinItsBounds(t *testing.T) {
	db := open(t)
	var l Log
	random := rand.New(rand.NewPCG(1, 2))
	var model []Record
	byNumber, byBytes := false, false
	for step := range 50 {
		size := 20
		if step >= 30 {
			size = 1000
		}
		var added []Record
		for range 1 + random.IntN(900) {
			n := uint64(len(model) + len(added) + 1)
			added = append(added, Record{
				Sequence: n, Index: 3 * n, Wall: int64(n), By: access.Caller{User: "u", Origin: access.Origin{Address: "10.0.0.1", Certificate: "c"}},
				Act: Act{"name.revoke", strings.Repeat("o", random.IntN(size)), fmt.Sprint("why ", n, strings.Repeat("?", random.IntN(size)))},
			})
		}
		appendTo(t, db, &l, added...)
		model = append(model, added...)
		got := readAll(t, db)
		if len(got) > MaxRecords || !slices.Equal(got, model[len(model)-len(got):]) {
			t.Fatalf("step %d: %d records, not the newest of %d", step, len(got), len(model))
		}
		bytes := 0
		for _, r := range got {
			bytes += len(r.encode())
		}
		if bytes > MaxBytes || bytes != l.bytes {
			t.Fatalf("step %d: %d bytes, and the log counts %d", step, bytes, l.bytes)
		}
		byNumber, byBytes = byNumber || len(got) == MaxRecords, byBytes || bytes > MaxBytes-4<<10
		if oldest := len(model) - len(got); oldest > 0 && len(got) < MaxRecords && bytes <= MaxBytes-4<<10 {
			t.Fatalf("step %d: record %d was dropped without need", step, oldest)
		}
		var again Log
		if err := again.Recover(db); err != nil || again.next != l.next || again.bytes != l.bytes || !slices.Equal(again.sizes, l.sizes) {
			t.Fatalf("step %d: recovered %v, %v", step, again, err)
		}
		if step%2 == 0 {
			l = again
		}
	}
	if !byNumber || !byBytes {
		t.Errorf("the bound of the number was reached: %v; that of the bytes: %v", byNumber, byBytes)
	}
}

func TestReadFilters(t *testing.T) {
	db := open(t)
	var l Log
	for n := range 10 {
		appendTo(t, db, &l, Record{Wall: int64(100 + n), By: access.Caller{User: fmt.Sprint("u", n%2)}, Act: Act{Name: "compact", Object: fmt.Sprint("revision ", n)}})
	}
	for _, c := range []struct {
		q     Query
		want  string
		after uint64
		more  bool
	}{
		{Query{Limit: 3, Bytes: 1 << 20}, "1 2 3", 3, true},
		{Query{After: 8, Limit: 3, Bytes: 1 << 20}, "9 10", 10, false},
		{Query{After: 10, Limit: 3, Bytes: 1 << 20}, "", 10, false},
		{Query{After: 1<<64 - 1, Limit: 3, Bytes: 1 << 20}, "", 1<<64 - 1, false},
		{Query{Limit: 100, Bytes: 1 << 20, User: "u1", Since: 105}, "6 8 10", 10, false},
		{Query{Limit: 100, Bytes: 1 << 20, ObjectPrefix: "revision 4"}, "5", 10, false},
		{Query{Limit: 100, Bytes: 1}, "1", 1, true},
	} {
		page, err := Read(db, c.q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range page.Records {
			got = append(got, fmt.Sprint(r.Sequence))
		}
		if strings.Join(got, " ") != c.want || page.After != c.after || page.More != c.more {
			t.Errorf("%+v: %v, after %d, more %v", c.q, got, page.After, page.More)
		}
	}
}

// A record has bounded, valid texts, whatever clients send.
func TestTextsOfRecordsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 2000) + "\xff"
	r := Record{By: access.Caller{User: long, Origin: access.Origin{Address: long, Certificate: long}}, Act: Act{"name.revoke", long, long}}
	if n := len(r.encode()); n > 4*maxNameBytes+2*maxTextBytes+64 {
		t.Errorf("a record has %d bytes", n)
	}
	got, err := decode(key(1), r.encode())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{got.By.User, got.By.Origin.Address, got.By.Origin.Certificate, got.Object, got.Reason} {
		if !utf8.ValidString(text) || !strings.HasSuffix(text, "ä…") {
			t.Errorf("%q", text)
		}
	}
	if got := string(cut("a\xffb", 10)); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}

func TestDamagedAuditLogIsReported(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"a gap":     {key(1), key(3), key(4)},
		"no number": {{record.FamilyAudit, 1}},
	} {
		db := open(t)
		for _, k := range keys {
			if err := db.Set(k, nil, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		var l Log
		if damaged := (*record.DamagedError)(nil); !errors.As(l.Recover(db), &damaged) {
			t.Errorf("%s is not reported", name)
		}
	}
	for name, damage := range map[string]struct{ key, value []byte }{
		"a record that cannot be read": {key(1), []byte("\xff")},
		"a record without a number":    {[]byte{record.FamilyAudit, 1}, nil},
	} {
		db := open(t)
		for _, r := range []struct{ key, value []byte }{damage, {[]byte{record.FamilyAudit, 2, 0, 0, 0, 0, 0, 0, 0}, nil}} {
			if err := db.Set(r.key, r.value, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Read(db, Query{Limit: 9, Bytes: 9})
		if damaged := (*record.DamagedError)(nil); !errors.As(err, &damaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The log carries from where a request came only with what may be an act, once all members keep the audit log, and carries
// the user only while access is enabled.
func TestCallerInTheLog(t *testing.T) {
	whole := access.Caller{User: "u", Revision: 3, Origin: access.Origin{Address: "10.0.0.1", Certificate: "c"}}
	user, origin := access.Caller{User: "u", Revision: 3}, access.Caller{Origin: whole.Origin}
	mark := replacing("n", keyspace.DeleteRequest{Key: record.MarkKey("n")})
	root := access.Caller{User: access.Root, Revision: 3}
	for _, c := range []struct {
		command entry.Command
		records gate.Version
		enabled bool
		want    access.Caller
	}{
		{ownership.Unpin{Name: "n"}, gate.Access, true, whole},
		{ownership.Unpin{Name: "n"}, gate.Access, false, origin},
		{ownership.Unpin{Name: "n"}, 0, true, user},
		{ownership.Unpin{Name: "n"}, 0, false, access.Caller{}},
		{access.AddRole{Name: "r"}, 0, false, origin}, // it needs a version with the audit log
		{keyspace.PutRequest{Key: []byte("k")}, gate.MarkActs, true, user},
		{keyspace.PutRequest{Key: []byte("k")}, gate.MarkActs, false, access.Caller{}},
		{mark, gate.MarkActs, true, whole},
		{mark, gate.MarkActs, false, origin},
		{mark, gate.Access, true, root}, // a member would check the rights over the key
		{mark, gate.Access, false, access.Caller{}},
		{mark, 0, true, root},
		{mark, 0, false, access.Caller{}},
	} {
		if got := Actor(whole, c.command, c.records, c.enabled); got != c.want {
			t.Errorf("%T, records of version %v, enabled %v: %+v, not %+v", c.command, c.records, c.enabled, got, c.want)
		}
	}
}
