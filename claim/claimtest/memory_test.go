package claimtest_test

import (
	"context"
	"testing"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// Clients of one memory see each other's writes. Clients of another memory do not.
func TestMemoryIsShared(t *testing.T) {
	ctx := context.Background()
	m := claimtest.NewMemory()
	a, b := m.Open(), m.Open()
	op := claim.NewOp()
	if done, err := a.Swap(ctx, claim.Swap{Record: claim.Record{Name: "x", Holder: "a", Op: op}}); !done || err != nil {
		t.Fatal(done, err)
	}
	if f, err := b.Get(ctx, "x"); err != nil || f.Record.Op != op || f.Record.Holder != "a" {
		t.Error(f, err)
	}
	other, err := m.OpenNamespace("other", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []claim.Store{other, claimtest.NewMemory().Open()} {
		if f, err := s.Get(ctx, "x"); err != nil || f.Record.Exists() {
			t.Error(f, err)
		}
	}
}
