package migratelease_test

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func TestPageShowsProgramThatCompiles(t *testing.T) {
	pageprogram.Vet(t, "../../docs/contrib/migrate.md", map[string]string{"migrations/1_users.up.sql": "SELECT 1"})
	pageprogram.Resolve(t, "../../docs/contrib/migrate.md", map[string]string{"migrations/1_users.up.sql": "SELECT 1"}, "../..", "contrib/migrate")
}
