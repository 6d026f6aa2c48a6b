package postgres_test

import (
	"context"
	"database/sql"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
)

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

// A program that has a *sql.DB keeps its leases there, without a pool of their own.
func ExampleNewDB() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	k, err := openKeeper(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	err = k.Run(ctx, "jobs/report", func(ctx context.Context, l *leasekeeper.Lease) error {
		_, err := db.ExecContext(ctx, "REFRESH MATERIALIZED VIEW report")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A transaction of database/sql commits only if the lease is still held.
func ExampleGateSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	k, err := openKeeper(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	err = k.Run(ctx, "jobs/report", func(ctx context.Context, l *leasekeeper.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := postgres.GateSQL(ctx, tx, l); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO report (day) VALUES (current_date)"); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		log.Fatal(err)
	}
}
