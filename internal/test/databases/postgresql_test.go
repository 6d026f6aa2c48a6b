//go:build unix

package databases

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

func one(t *testing.T, database, query string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), query, pgx.QueryExecModeExec).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestPostgreSQLServerStartsAndRestarts(t *testing.T) {
	s := NewPostgreSQL(t)
	a, b := s.Database(t), s.Database(t)
	if a == b {
		t.Fatal("two databases are one")
	}
	s.Run(t, a, "CREATE TABLE x (y text)", "INSERT INTO x VALUES ('there')")
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "server_encoding": "UTF8"} {
		if got := one(t, a, "SHOW "+setting); got != want {
			t.Errorf("%s is %s", setting, got)
		}
	}
	s.Crash(t)
	if conn, err := pgx.Connect(t.Context(), a); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("it answers after it crashed")
	}
	s.Start(t)
	if got := one(t, a, "SELECT y FROM x"); got != "there" {
		t.Errorf("after a crash there is %q", got)
	}
	t.Run("PgBouncer", func(t *testing.T) {
		if got := one(t, s.NewPgBouncer(t).Before(t, a), "SELECT y FROM x"); got != "there" {
			t.Errorf("there is %q", got)
		}
	})
}
