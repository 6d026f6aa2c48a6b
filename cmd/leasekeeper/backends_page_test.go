package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	_ "github.com/leasekeeper/leasekeeper/backend/memory" // memory:
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// hasAbility reports whether a backend has the ability T.
func hasAbility[T any](b backend.Backend) bool {
	_, err := backend.Can[T](b)
	return err == nil
}

// The table of docs/backends.md says "yes" and "no" where the backends do. Backends on databases are of one type, which
// SQLite stands for here; what depends on the rights of a user is no plain "yes" there.
func TestTableOfBackendsSaysWhatTheyCan(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "backends.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if _, known := rows[cells[0]]; !known && len(cells) == 7 {
			rows[cells[0]] = cells[1:]
		}
	}
	abilities := map[string]func(backend.Backend) bool{
		"`WithPriority`":                     func(b backend.Backend) bool { return b.Limits().Priorities },
		"`history`":                          hasAbility[backend.Historian],
		"`pin`":                              hasAbility[backend.Pinner],
		"`revoke`":                           hasAbility[backend.Revoker],
		"`transfer`":                         hasAbility[backend.Transferrer],
		"`Keeper.Transfer`, `transfer --to`": hasAbility[backend.Preferrer],
		"waiting claims are [listed](console.md#pages), with their holders": hasAbility[backend.QueueLister],
	}
	database := settings.FileStore(filepath.Join(t.TempDir(), "leases.db"))
	for column, url := range []string{database, database, database, "etcd://127.0.0.1:1/", "leasekeeper://127.0.0.1:1/", "memory:"} {
		b, err := backend.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close(context.WithoutCancel(t.Context()))
		for row, has := range abilities {
			cells := rows[row]
			if len(cells) != 6 {
				t.Fatalf("docs/backends.md has no row %q", row)
			}
			says := cells[column]
			if says == "on Linux" && runtime.GOOS == "linux" || strings.HasPrefix(says, "as `WithPriority`") && runtime.GOOS == "linux" {
				says = "yes"
			}
			if got := has(b); says == "yes" && !got || says == "no" && got {
				t.Errorf("docs/backends.md says %q of %s on %s, which has it: %v", says, row, b.Scheme(), got)
			}
		}
	}
}
