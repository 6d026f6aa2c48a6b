//go:build unix

package databases

import (
	"database/sql"
	"testing"
)

func TestMariaDBServerStarts(t *testing.T) {
	s := NewMariaDB(t)
	seen := map[string]bool{}
	for range 2 {
		db, err := sql.Open("mysql", s.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var name, isolation, engine string
		if err := db.QueryRow("SELECT database(), @@tx_isolation, @@default_storage_engine").Scan(&name, &isolation, &engine); err != nil {
			t.Fatal(err)
		}
		if seen[name] || isolation != "REPEATABLE-READ" || engine != "InnoDB" {
			t.Errorf("database %s with isolation %s and engine %s", name, isolation, engine)
		}
		seen[name] = true
	}
}
