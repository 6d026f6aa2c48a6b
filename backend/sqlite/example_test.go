package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/sqlite"
)

// file returns the path of a file for an example, and a function that removes it.
func file() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, "app.db"), func() { os.RemoveAll(dir) }
}

func Example() {
	ctx := context.Background()
	path, remove := file()
	defer remove()
	k, err := leasekeeper.Open(ctx, "sqlite:"+path)
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	err = k.Run(ctx, "jobs/nightly", func(ctx context.Context, l *leasekeeper.Lease) error {
		fmt.Println("mine, with token", l.Token())
		return nil
	})
	fmt.Println(err)
	// Output:
	// mine, with token 1
	// <nil>
}

func ExampleGate() {
	ctx := context.Background()
	path, remove := file()
	defer remove()
	// The program's own database, which also has the leases.
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := sqlite.New(ctx, db, sqlite.Config{})
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
	if _, err := db.ExecContext(ctx, "CREATE TABLE report (day TEXT PRIMARY KEY)"); err != nil {
		log.Fatal(err)
	}
	write := func(l *leasekeeper.Lease, day string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if err := sqlite.Gate(ctx, tx, l); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO report VALUES (?)", day); err != nil {
			return err
		}
		return tx.Commit()
	}
	l, err := k.Acquire(ctx, "jobs/report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(write(l, "monday"))
	if err := l.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(write(l, "tuesday"), leasekeeper.ErrLost))
	// Output:
	// <nil>
	// true
}
