package node

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// origin is from where the requests of these tests come.
var origin = access.Origin{Address: "10.0.0.1", Certificate: "laptop"}

// auditLog returns the whole audit log of a member.
func auditLog(t *testing.T, n *Node) (records []audit.Record, recording bool) {
	t.Helper()
	page, recording, err := n.Audit(t.Context(), audit.Query{Limit: 1000, Bytes: 1 << 20})
	if err != nil || page.More {
		t.Fatalf("audit log: %+v, %v", page, err)
	}
	return page.Records, recording
}

// The audit log begins with the first user. Before that, forced acts do not keep the cluster from an earlier program.
func TestAuditLogBeginsWithTheFirstUser(t *testing.T) {
	n := startNode(t, t.TempDir())
	from := As(t.Context(), access.Caller{Origin: origin})
	act := func() {
		t.Helper()
		if _, err := n.RevokeName(from, ownership.Revoke{Name: "n", Note: "stuck", Now: true}); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(id lessor.ID) {
		t.Helper()
		if _, err := n.Claim(t.Context(), ownership.Claim{Name: "n", Lease: id, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	hold(1)
	act()
	if records, recording := auditLog(t, n); len(records) > 0 || recording || n.VersionInUse() >= gate.Access {
		t.Fatalf("before the first user: %+v, %v", records, recording)
	}
	if _, err := n.ChangeAccess(from, access.AddUser{Name: "u", Hash: []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.RevokeName(from, ownership.Revoke{Name: "nobody's"}); err == nil {
		t.Fatal("a free name was revoked")
	}
	hold(2)
	act()
	records, recording := auditLog(t, n)
	if len(records) != 2 || !recording {
		t.Fatalf("%+v, %v", records, recording)
	}
	for i, want := range []audit.Act{{Name: "user.add", Object: "u"}, {Name: "name.revoke", Object: "n", Reason: "stuck"}} {
		if r := records[i]; r.Act != want || r.By.Origin != origin || r.Wall == 0 || r.Index == 0 || r.Sequence != uint64(i+1) {
			t.Errorf("record %d is %+v", i, r)
		}
	}
}

// awaitRecording waits until the audit log has begun, which no client requests.
func awaitRecording(t *testing.T, n *Node) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if records, recording := auditLog(t, n); recording && len(records) == 0 {
			return
		} else if len(records) > 0 || time.Now().After(deadline) {
			t.Fatalf("%+v, recording %v", records, recording)
		}
	}
}

// Every member says that the log has begun, although only the leader begins it.
func TestAuditLogBeginsByOrderInACluster(t *testing.T) {
	q := (&quorum{audit: true}).begin(t)
	q.leader()
	for _, id := range q.ids {
		awaitRecording(t, q.s.at(id))
	}
}

func TestAuditLogBeginsByOrder(t *testing.T) {
	n, err := Start(t.Context(), Config{Dir: t.TempDir(), Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	<-n.Ready()
	awaitRecording(t, n)
	mustPut(t, n, "k", "v", 0)
	h := mustPut(t, n, "k", "w", 0)
	if _, err := n.Compact(As(t.Context(), access.Caller{Origin: origin}), h.Revision, false); err != nil {
		t.Fatal(err)
	}
	if records, _ := auditLog(t, n); len(records) != 1 || records[0].Name != "compact" {
		t.Errorf("%+v", records)
	}
}

// Every member has the same audit log, also one that installed a whole state, one that started again, and a cluster that was
// restored from a backup.
func TestAuditLogReachesEveryMember(t *testing.T) {
	q := newQuorumOf(t, 8)
	leader, laggard := q.leader()
	id := laggard.identity.MemberID
	q.s.cutOff(id)
	for _, user := range []string{"a", "b"} {
		if _, err := leader.ChangeAccess(As(t.Context(), access.Caller{Origin: origin}), access.AddUser{Name: user}); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 { // more than the log keeps for a follower
		mustPut(t, leader, "k", "v", 0)
	}
	want, _ := auditLog(t, leader)
	if len(want) != 2 || want[1].Object != "b" {
		t.Fatalf("the leader has %+v", want)
	}
	same := func(what string, n *Node) {
		t.Helper()
		if got, _ := auditLog(t, n); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, not %+v", what, got, want)
		}
	}
	q.s.cutOff(0)
	snapped(t, leader, laggard)
	same("the member that was cut off", laggard)
	backup := takeSnapshot(t, laggard)
	q.stop(id)
	laggard = q.start(id)
	<-laggard.Ready()
	same("the member that started again", laggard)

	into := filepath.Join(t.TempDir(), "new")
	mustRestore(t, backup, into)
	n, err := Start(context.Background(), Config{Dir: into})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	<-n.Ready()
	same("the restored server", n)
}
