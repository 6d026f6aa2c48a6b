package node

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// appendEntry appends an entry to the log in the data directory of a stopped member, as if the member had stopped after the
// entry reached its disk and before it applied it.
func appendEntry(t *testing.T, dir string, commands ...entry.Command) {
	t.Helper()
	db, lock, err := datadir.Open(vfs.Default, dir, datadir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applied, hard := new(logpb.Applied), new(raftpb.HardState)
	_, err = record.Load(db, record.KeyApplied, applied)
	if _, loaded := record.Load(db, record.KeyHardState, hard); err != nil || loaded != nil {
		t.Fatal(err, loaded)
	}
	var prepared []*entry.Prepared
	for _, c := range commands {
		p := entry.Prepare(c, access.Caller{})
		prepared = append(prepared, &p)
	}
	batch := db.NewBatch()
	index := applied.Index + 1
	record.Put(batch, record.LogKey(index), &raftpb.Entry{
		Index: &index, Term: hard.Term, Type: raftpb.EntryNormal.Enum(), Data: entry.New(entry.Header{Sequence: 1 << 40}, slices.Values(prepared)),
	})
	if err := errors.Join(batch.Commit(pebble.Sync), db.Close(), lock.Close()); err != nil {
		t.Fatal(err)
	}
}

// memberWithUsers starts a member that is alone, with the users root and alice, and a lease.
func memberWithUsers(t *testing.T, dir string) *Node {
	t.Helper()
	n, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	for _, c := range []access.Command{
		access.AddUser{Name: access.Root, Hash: []byte("lost")}, access.GrantRole{User: access.Root, Role: access.Root},
		access.AddUser{Name: "alice", Hash: []byte("hers")}, access.AddRole{Name: "r"}, access.GrantRole{User: "alice", Role: "r"},
	} {
		if _, err := n.ChangeAccess(t.Context(), c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	return n
}

// checkDisabled checks that a new cluster has users and roles, that access is not enabled, and that the audit log records
// it once.
func checkDisabled(t *testing.T, what string, n *Node) {
	t.Helper()
	p := n.Access()
	if p.Enabled() || p.User(access.Root) == nil || string(p.User("alice").Hash) != "hers" || p.Role("r") == nil {
		t.Errorf("%s: %+v", what, p)
	}
	var found []audit.Record
	records, recording := auditLog(t, n)
	for _, r := range records {
		if r.Act == audit.DisabledByRestore {
			found = append(found, r)
		}
	}
	if len(found) != 1 || !recording || len(records) < 6 || found[0].Wall == 0 || found[0].Index == 0 || found[0].By != (access.Caller{}) {
		t.Errorf("%s: the audit log has %+v, recording %v", what, records, recording)
	}
}

// An operator with the disks disables access on the data of a stopped member, and on a snapshot. Users, roles and the audit
// log stay. The operator can then change the password of root and enable access again.
func TestAccessIsDisabledOnDataOfStoppedMember(t *testing.T) {
	dir := t.TempDir()
	n := memberWithUsers(t, dir)
	if _, err := n.ChangeAccess(t.Context(), access.Enable{}); err != nil {
		t.Fatal(err)
	}
	backup := takeSnapshot(t, n)
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	o := RestoreOptions{Now: time.Now(), DisableAccess: true}
	recovered, restored := filepath.Join(t.TempDir(), "new"), filepath.Join(t.TempDir(), "new")
	made, _, err := Rebuild(t.Context(), vfs.Default, dir, recovered, true, o)
	if err != nil || !made.AccessDisabled {
		t.Fatalf("%+v, %v", made, err)
	}
	if made, err := Restore(t.Context(), vfs.Default, bytes.NewReader(backup), restored, o); err != nil || !made.AccessDisabled {
		t.Fatalf("%+v, %v", made, err)
	}
	for what, dir := range map[string]string{"recovered": recovered, "restored": restored} {
		m := startNode(t, dir)
		checkDisabled(t, what, m)
		for _, c := range []access.Command{access.ChangePassword{Name: access.Root, Hash: []byte("new")}, access.Enable{}} {
			if _, err := m.ChangeAccess(t.Context(), c); err != nil {
				t.Errorf("%s: %T: %v", what, c, err)
			}
		}
		if _, err := m.ChangeAccess(t.Context(), access.Disable{}); !errors.Is(err, access.ErrUserEmpty) {
			t.Errorf("%s: afterwards nobody may disable access: %v", what, err)
		}
	}
}

// An entry that enables access, and that the member had in its log without having applied it, does not enable access in the
// new cluster. What was in the same entry happens.
func TestPendingEnableIsVoidAfterAccessWasDisabled(t *testing.T) {
	dir := t.TempDir()
	if err := memberWithUsers(t, dir).Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	appendEntry(t, dir, access.AddUser{Name: "late"}, access.Enable{}, entry.Grant{Lease: 77, TTL: time.Hour})
	for _, disable := range []bool{true, false} {
		into := filepath.Join(t.TempDir(), "new")
		made, found, err := Rebuild(t.Context(), vfs.Default, dir, into, true, RestoreOptions{Now: time.Now(), DisableAccess: disable})
		if err != nil || found.Unapplied != 1 || made.AccessDisabled != disable {
			t.Fatalf("%+v, %+v, %v", made, found, err)
		}
		m := startNode(t, into)
		if _, left, err := m.TimeToLive(t.Context(), 77, false); disable && (err != nil || left.Granted != time.Hour) {
			t.Errorf("the lease is %+v, %v", left, err)
		}
		if m.Access().User("late") == nil || m.Access().Enabled() == disable {
			t.Errorf("with the order %v: %+v", disable, m.Access())
		}
		if disable {
			checkDisabled(t, "recovered", m)
		}
	}
}
