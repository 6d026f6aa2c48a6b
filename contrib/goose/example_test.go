package gooselease_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	_ "modernc.org/sqlite"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
	gooselease "github.com/leasekeeper/leasekeeper/contrib/goose"
)

// exampleKeeper returns a keeper on a store in memory. Programs use a store that all migrators share.
func exampleKeeper() *leasekeeper.Keeper {
	keeper, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		log.Fatal(err)
	}
	return keeper
}

// exampleDatabase returns an empty database.
func exampleDatabase() *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	return db
}

var exampleFiles = fstest.MapFS{"00001_users.sql": {Data: []byte("-- +goose Up\nCREATE TABLE users (id integer);\n")}}

func ExampleLocker_Run() {
	ctx := context.Background()
	keeper, db := exampleKeeper(), exampleDatabase()
	defer db.Close()
	defer keeper.Close()

	locker := gooselease.NewLocker(keeper, "migrations/app")
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, exampleFiles, goose.WithLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		err = locker.Run(ctx, func(ctx context.Context) error {
			results, err := provider.Up(ctx)
			fmt.Println(len(results), "migrations")
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 1 migrations
	// 0 migrations
}

func ExampleNewLocker() {
	keeper, db := exampleKeeper(), exampleDatabase()
	defer db.Close()
	defer keeper.Close()

	locker := gooselease.NewLocker(keeper, "migrations/app", leasekeeper.NoWait(), leasekeeper.WithCard("release 1.2"))
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, exampleFiles, goose.WithLocker(locker))
	fmt.Println(len(provider.ListSources()), err)
	// Output: 1 <nil>
}

func ExampleLocker_Lease() {
	ctx := context.Background()
	keeper, db := exampleKeeper(), exampleDatabase()
	defer db.Close()
	defer keeper.Close()

	locker := gooselease.NewLocker(keeper, "migrations/app")
	step := goose.NewGoMigration(2, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		fmt.Println("token", locker.Lease(ctx).Token()) // send it with writes outside of the database
		return nil
	}}, nil)
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, nil, goose.WithLocker(locker), goose.WithGoMigrations(step))
	if err != nil {
		log.Fatal(err)
	}
	err = locker.Run(ctx, func(ctx context.Context) error {
		_, err := provider.Up(ctx)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: token 1
}

func ExampleLocker_Lock() {
	ctx := context.Background()
	keeper := exampleKeeper()
	defer keeper.Close()

	locker := gooselease.NewLocker(keeper, "migrations/app")
	err := locker.Run(ctx, func(ctx context.Context) error { // what a provider does
		if err := locker.Lock(ctx, nil); err != nil {
			return err
		}
		fmt.Println("locked")
		return locker.Unlock(ctx, nil)
	})
	fmt.Println(err)
	// Output:
	// locked
	// <nil>
}

func ExampleLocker_Unlock() { ExampleLocker_Lock() }

func ExampleLocker_SessionLock() {
	keeper, db := exampleKeeper(), exampleDatabase()
	defer db.Close()
	defer keeper.Close()

	locker := gooselease.NewLocker(keeper, "migrations/app")
	_, err := goose.NewProvider(goose.DialectSQLite3, db, exampleFiles, goose.WithSessionLocker(locker))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleLocker_SessionUnlock() { ExampleLocker_SessionLock() }

// The lease must be in the database that is migrated.
func ExampleLocker_Gated() {
	ctx := context.Background()
	keeper, err := leasekeeper.Open(ctx, "postgres://db.example.org/app")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("pgx", "postgres://db.example.org/app")
	if err != nil {
		log.Fatal(err)
	}
	locker := gooselease.NewLocker(keeper, "migrations/app")
	versions, err := database.NewStore(goose.DialectPostgres, goose.DefaultTablename)
	if err != nil {
		log.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, exampleFiles,
		goose.WithLocker(locker), goose.WithStore(locker.Gated(versions, postgres.GateSQL)))
	if err != nil {
		log.Fatal(err)
	}
	err = locker.Run(ctx, func(ctx context.Context) error {
		_, err := provider.Up(ctx)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleGate() {
	var gate gooselease.Gate = postgres.GateSQL
	fmt.Println(gate != nil)
	// Output: true
}
