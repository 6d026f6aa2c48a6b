package postgres_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
)

// What a program does under a lease in its own database commits only if it still holds the lease.
func ExampleGate() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(ctx, pool, postgres.Config{Namespace: "reports"})
	if err != nil {
		log.Fatal(err)
	}
	backend, err := claimed.New(store)
	if err != nil {
		log.Fatal(err)
	}
	k, err := leasekeeper.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	err = k.Run(ctx, "jobs/report", func(ctx context.Context, l *leasekeeper.Lease) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := postgres.Gate(ctx, tx, l); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO report (day) VALUES (current_date)")
			return err
		})
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleOpen() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, "postgres://app@db.example.org/app?ns=reports", postgres.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close(ctx)
}
