package migratelease_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	_ "github.com/leasekeeper/leasekeeper/backend/postgres"
	migratelease "github.com/leasekeeper/leasekeeper/contrib/migrate"
)

// exampleKeeper returns a keeper on a store in memory. Programs use a store that all migrators share.
func exampleKeeper() *leasekeeper.Keeper {
	keeper, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		log.Fatal(err)
	}
	return keeper
}

// exampleDriver returns a driver of golang-migrate, which keeps a version in memory.
func exampleDriver() database.Driver {
	inner, err := stub.WithInstance(nil, &stub.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return inner
}

var exampleFiles = fstest.MapFS{"1_users.up.sql": {Data: []byte("CREATE TABLE users (id integer)")}}

func ExampleNew() {
	ctx := context.Background()
	keeper := exampleKeeper()
	defer keeper.Close()

	source, err := iofs.New(exampleFiles, ".")
	if err != nil {
		log.Fatal(err)
	}
	driver := migratelease.New(ctx, keeper, "migrations/app", exampleDriver())
	m, err := migrate.NewWithInstance("iofs", source, "app", driver)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Up())
	fmt.Println(m.Up())
	// Output:
	// <nil>
	// no change
}

func ExampleOpen() {
	ctx := context.Background()
	keeper, err := leasekeeper.Open(ctx, "postgres://db.example.org/app")
	if err != nil {
		log.Fatal(err)
	}
	config, err := pgx.ParseConfig("postgres://pgbouncer.example.org/app?default_query_exec_mode=exec")
	if err != nil {
		log.Fatal(err)
	}
	driver, err := migratelease.Open(ctx, keeper, "migrations/app", stdlib.GetConnector(*config),
		func(db *sql.DB) (database.Driver, error) { return migratepgx.WithInstance(db, &migratepgx.Config{}) })
	if err != nil {
		log.Fatal(err)
	}
	source, err := iofs.New(exampleFiles, ".")
	if err != nil {
		log.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "app", driver)
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		log.Fatal(err)
	}
}

// What Migrate does with a driver.
func ExampleDriver() {
	ctx := context.Background()
	keeper := exampleKeeper()
	defer keeper.Close()

	driver := migratelease.New(ctx, keeper, "migrations/app", exampleDriver())
	fmt.Println(driver.SetVersion(1, true))
	if err := driver.Lock(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("token", driver.Lease().Token())
	fmt.Println(errors.Join(driver.SetVersion(1, true), driver.SetVersion(1, false), driver.Unlock(), driver.Close()))
	// Output:
	// migratelease: migrations/app: can't unlock, as not currently locked: the driver was closed, or Migrate did not use its lock within 5s
	// token 1
	// <nil>
}

func ExampleDriver_Lease() { ExampleDriver() }
