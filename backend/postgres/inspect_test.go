package postgres

import (
	"errors"
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestInspectionMakesNoTables(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	for range 2 { // the second one would find what the first one made
		found, err := backend.Inspect(t.Context(), database)
		if err != nil || found.Schema != 0 || found.Newest != sqlstore.Version || found.RoundTrip <= 0 || !found.HasClock {
			t.Fatalf("%+v, %v", found, err)
		}
	}
	opened(t, database, Config{})
	found, err := backend.Inspect(t.Context(), database)
	if err != nil || found.Schema != sqlstore.Version {
		t.Errorf("%+v, %v", found, err)
	}
	for _, s := range found.Settings {
		if s.Name == "synchronous_commit" && s.Fix != "" {
			t.Errorf("%+v", s)
		}
	}
}

func TestInspectionFindsSettingsThatLoseWrites(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	hasty := user(t, database, "hasty_inspector")
	run(t, database, "ALTER ROLE hasty_inspector SET synchronous_commit = 'off'")
	for url, accepted := range map[string]bool{hasty: false, hasty + "&accept=loss": true} {
		found, err := backend.Inspect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found.Settings, func(s backend.Setting) bool { return s.Name == "synchronous_commit" })
		if i < 0 || found.Settings[i].Value != "off" || found.Settings[i].Fix == "" || found.Settings[i].Accepted != accepted {
			t.Errorf("accepted %v: %+v", accepted, found.Settings)
		}
	}
}

func TestInspectionRefusesToWrite(t *testing.T) {
	found := inspected{}
	if err := found.Script(t.Context(), "CREATE TABLE x ()"); err == nil {
		t.Error("it ran")
	}
	if _, err := backend.Inspect(t.Context(), "postgres://me@127.0.0.1:1/app?connect_timeout=1"); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}
