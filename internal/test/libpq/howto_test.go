//go:build unix

package libpq

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// This file holds the code of docs/how-to/database-sql.md. TestPageShowsCodeThatRuns checks that the page shows copies of
// it.

// openKeeper returns a keeper whose leases are in the program's database.
func openKeeper(ctx context.Context, db *sql.DB) (*leasekeeper.Keeper, error) {
	store, err := postgres.NewDB(ctx, db, postgres.Config{})
	if err != nil {
		return nil, err
	}
	b, err := claimed.New(store)
	if err != nil {
		return nil, err
	}
	return leasekeeper.New(b)
}

// openWithGORM opens a keeper on the connections of GORM.
func openWithGORM(ctx context.Context, db *gorm.DB) (*leasekeeper.Keeper, error) {
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	return openKeeper(ctx, pool)
}

func reportWithGORM(ctx context.Context, db *gorm.DB, k *leasekeeper.Keeper) error {
	return k.Run(ctx, "jobs/report", func(ctx context.Context, l *leasekeeper.Lease) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := postgres.GateSQL(ctx, tx.Statement.ConnPool.(*sql.Tx), l); err != nil {
				return err
			}
			return tx.Exec("INSERT INTO report (day) VALUES (current_date)").Error
		})
	})
}

// The keeper is openKeeper(ctx, db.DB).
func reportWithSQLX(ctx context.Context, db *sqlx.DB, k *leasekeeper.Keeper) error {
	return k.Run(ctx, "jobs/report", func(ctx context.Context, l *leasekeeper.Lease) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := postgres.GateSQL(ctx, tx.Tx, l); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO report (day) VALUES (current_date)"); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// The keeper is openKeeper(ctx, db.DB).
func reportWithBun(ctx context.Context, db *bun.DB, k *leasekeeper.Keeper) error {
	return k.Run(ctx, "jobs/report", func(ctx context.Context, l *leasekeeper.Lease) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if err := postgres.GateSQL(ctx, tx.Tx, l); err != nil {
				return err
			}
			_, err := tx.NewRaw("INSERT INTO report (day) VALUES (current_date)").Exec(ctx)
			return err
		})
	})
}

// The programs of the page run with the real libraries, on one database.
func TestProgramsOfThePageRun(t *testing.T) {
	server := databases.PostgreSQL(t)
	url := server.Database(t)
	server.Run(t, url, "CREATE TABLE report (day date)")
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	keeper := func(k *leasekeeper.Keeper, err error) *leasekeeper.Keeper {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
		return k
	}
	withGORM, err := gorm.Open(gormpostgres.Open(url), &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if pool, err := withGORM.DB(); err == nil {
			_ = pool.Close()
		}
	})
	if err := reportWithGORM(t.Context(), withGORM, keeper(openWithGORM(t.Context(), withGORM))); err != nil {
		t.Error(err)
	}
	withSQLX := sqlx.NewDb(db, "pgx")
	if err := reportWithSQLX(t.Context(), withSQLX, keeper(openKeeper(t.Context(), withSQLX.DB))); err != nil {
		t.Error(err)
	}
	withBun := bun.NewDB(db, pgdialect.New())
	if err := reportWithBun(t.Context(), withBun, keeper(openKeeper(t.Context(), withBun.DB))); err != nil {
		t.Error(err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM report").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d reports, want 3: %v", n, err)
	}
}

func TestPageShowsCodeThatRuns(t *testing.T) {
	source, err := os.ReadFile("howto_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/how-to/database-sql.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) < 4 {
		t.Errorf("the page shows %d blocks of code", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(string(source), code) {
			t.Errorf("the page shows code that is not in howto_test.go:\n%s", code)
		}
	}
}
