package node

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A member that starts again, and one that is restored from a snapshot, have the same limits and count as before.
func TestQuotasOutliveRestartAndRestore(t *testing.T) {
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	if _, _, err := n.Grant(t.Context(), 9, time.Hour); err != nil { // nobody's
		t.Fatal(err)
	}
	for _, c := range []access.Command{
		access.AddUser{Name: access.Root}, access.AddUser{Name: "u"}, access.AddRole{Name: "r"}, access.GrantRole{User: access.Root, Role: access.Root},
		access.GrantRole{User: "u", Role: "r"}, access.GrantRight{Role: "r", Right: access.Right{Rights: access.Hold}},
		access.SetQuota{User: "u", Limits: []access.Limit{{Resource: access.Leases, Most: 3}}},
		access.SetQuota{Limits: []access.Limit{{Resource: access.Names, Most: 1}}}, access.Enable{},
	} {
		if _, err := n.ChangeAccess(t.Context(), c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	as := func(n *Node) context.Context {
		return As(t.Context(), access.Caller{User: "u", Revision: n.Access().Revision()})
	}
	if _, _, err := n.Grant(as(n), 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Claim(as(n), ownership.Claim{Name: "n", Lease: 2, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	check := func(what string, n *Node, next lessor.ID) {
		t.Helper()
		if u, err := n.Usage(t.Context(), "u"); err != nil || u.Leases != 2 || u.Names != 1 {
			t.Errorf("%s: %+v, %v", what, u, err)
		}
		page, err := n.UnownedLeases(t.Context(), nil, 10)
		if err != nil || len(page.Leases) != 1 || page.Leases[0].ID != 9 || page.More {
			t.Errorf("%s: nobody's leases are %+v, %v", what, page, err)
		}
		if _, err := n.Claim(as(n), ownership.Claim{Name: "m", Lease: next, TTL: time.Hour}); !errors.Is(err, access.ErrQuota) {
			t.Errorf("%s: a second name: %v", what, err)
		}
		if _, _, err := n.Grant(as(n), next, time.Hour); err != nil {
			t.Errorf("%s: a third lease: %v", what, err)
		}
		if _, _, err := n.Grant(as(n), next+1, time.Hour); !errors.Is(err, access.ErrQuota) {
			t.Errorf("%s: a fourth lease: %v", what, err)
		}
		if _, err := n.Revoke(as(n), next); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("the first run", n, 20)
	backup := takeSnapshot(t, n)
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "new")
	mustRestore(t, backup, into)
	for what, dir := range map[string]string{"the second run": dir, "the restored member": into} {
		n, err := Start(context.Background(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		<-n.Ready()
		check(what, n, 30)
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
