package node

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/quota"
)

// A file in etcd's format has neither limits nor the owners of leases. So after an import no user has a limit, and the leases
// of the file count for nobody, also when they end. New limits count the leases that are granted from then on.
func TestImportedLeasesCountForNobodyAndLimitsAreGone(t *testing.T) {
	n := startNode(t, t.TempDir())
	limits := []access.Command{
		access.SetQuota{User: "u", Limits: []access.Limit{{Resource: access.Leases, Most: 2}}},
		access.SetQuota{Limits: []access.Limit{{Resource: access.Names, Most: 1}}},
	}
	for _, c := range append([]access.Command{
		access.AddUser{Name: access.Root}, access.AddUser{Name: "u"}, access.AddRole{Name: "r"}, access.GrantRole{User: access.Root, Role: access.Root},
		access.GrantRole{User: "u", Role: "r"}, access.GrantRight{Role: "r", Right: access.Right{Rights: access.Hold}}, access.Enable{},
	}, limits...) {
		if _, err := n.ChangeAccess(As(t.Context(), access.Caller{User: access.Root}), c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	as := func(n *Node, user string) context.Context {
		return As(t.Context(), access.Caller{User: user, Revision: n.Access().Revision()})
	}
	if _, _, err := n.Grant(as(n, "u"), 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Claim(as(n, "u"), ownership.Claim{Name: "n", Lease: 2, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "new")
	mustImport(t, saveForEtcd(t, n), into, RestoreOptions{Now: time.Now()})
	m := startNode(t, into)
	usage := func(what string, want quota.Usage) {
		t.Helper()
		if got, err := m.Usage(t.Context(), "u"); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	if p := m.Access(); !p.Enabled() || p.User("u") == nil || p.Most("u", access.Leases) != access.Unlimited || p.Most("u", access.Names) != access.Unlimited {
		t.Errorf("imported: %+v", p)
	}
	usage("imported", quota.Usage{})
	if page, err := m.UnownedLeases(t.Context(), nil, 10); err != nil || len(page.Leases) != 2 {
		t.Errorf("nobody's leases are %+v, %v", page, err)
	}
	for _, c := range limits {
		if _, err := m.ChangeAccess(as(m, access.Root), c); err != nil {
			t.Fatal(err)
		}
	}
	// Etcd's format has no rights over names either, so only root could claim one.
	for range 2 {
		if _, _, err := m.Grant(as(m, "u"), 0, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	usage("after two grants", quota.Usage{Leases: 2})
	if _, _, err := m.Grant(as(m, "u"), 0, time.Hour); !errors.Is(err, access.ErrQuota) {
		t.Errorf("a third lease: %v", err)
	}
	if _, err := m.Revoke(as(m, access.Root), 1); err != nil {
		t.Fatal(err)
	}
	usage("after the end of an imported lease", quota.Usage{Leases: 2})
	if _, _, err := m.Grant(as(m, "u"), 0, time.Hour); !errors.Is(err, access.ErrQuota) {
		t.Errorf("a third lease, after an imported one ended: %v", err)
	}
}
