package gooselease_test

import (
	"database/sql"
	"io/fs"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/leasekeeper/leasekeeper/backend/postgres"
	gooselease "github.com/leasekeeper/leasekeeper/contrib/goose"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func TestPageShowsProgramThatCompiles(t *testing.T) {
	pageprogram.Vet(t, "../../docs/contrib/goose.md", map[string]string{"migrations/00001_users.sql": "-- +goose Up\n"})
	pageprogram.Resolve(t, "../../docs/contrib/goose.md", map[string]string{"migrations/00001_users.sql": "-- +goose Up\n"}, "../..", "contrib/goose")
	pageprogram.Shows(t, "../../docs/contrib/goose.md", "page_test.go")
}

// newGatedProvider has the code of the page that is no program. ExampleLocker_Gated runs the same with SQLite's gate.
func newGatedProvider(db *sql.DB, migrations fs.FS, locker *gooselease.Locker) (*goose.Provider, error) {
	versions, err := database.NewStore(goose.DialectPostgres, goose.DefaultTablename) // goose's package database
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, migrations, goose.WithLocker(locker),
		goose.WithStore(locker.Gated(versions, postgres.GateSQL)))
	return provider, err
}

var _ = newGatedProvider // the test compiles it
