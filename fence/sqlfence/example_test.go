package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/sqlfence"
)

// open opens a database in memory. It uses one connection, because each connection would have its own database.
func open() *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`
		CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT, token INTEGER NOT NULL DEFAULT 0);
		INSERT INTO jobs (id, state) VALUES ('nightly', 'waiting')`); err != nil {
		panic(err)
	}
	return db
}

func ExampleColumn_Update() {
	ctx, db := context.Background(), open()
	defer db.Close()
	jobs := sqlfence.Column{Dialect: sqlfence.SQLite, Table: "jobs", ID: "id", Token: "token"}

	fmt.Println(jobs.Update(ctx, db, "nightly", 33, "state = ?", "half done"))
	fmt.Println(jobs.Update(ctx, db, "nightly", 34, "state = ?", "done")) // the lease has a new holder
	err := jobs.Update(ctx, db, "nightly", 33, "state = ?", "failed")     // its previous holder wakes up
	fmt.Println(errors.Is(err, fence.ErrStale))
	fmt.Println(errors.Is(jobs.Update(ctx, db, "weekly", 34, "state = ?", "done"), sqlfence.ErrNotFound))

	var state string
	fmt.Println(db.QueryRow("SELECT state FROM jobs").Scan(&state), state)
	// Output:
	// <nil>
	// <nil>
	// true
	// true
	// <nil> done
}

func ExampleColumn_Advance() {
	ctx, db := context.Background(), open()
	defer db.Close()
	jobs := sqlfence.Column{Dialect: sqlfence.SQLite, Table: "jobs", ID: "id", Token: "token"}

	// A new holder advances the token first, and then reads: no previous holder can change what it has read.
	fmt.Println(jobs.Advance(ctx, db, "nightly", 34))
	err := jobs.Update(ctx, db, "nightly", 33, "state = ?", "half done")
	fmt.Println(errors.Is(err, fence.ErrStale))
	// Output:
	// <nil>
	// true
}

func ExampleTable_Guard() {
	ctx, db := context.Background(), open()
	defer db.Close()
	marks := sqlfence.Table{Dialect: sqlfence.SQLite}
	if err := marks.Create(ctx, db); err != nil {
		fmt.Println(err)
	}
	replaceAll := func(token fence.Token, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if err := marks.Guard(ctx, tx, "import", token); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM jobs"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO jobs (id) VALUES (?)", id); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(replaceAll(34, "imported"))
	fmt.Println(errors.Is(replaceAll(33, "too late"), fence.ErrStale))
	fmt.Println(marks.Highest(ctx, db, "import"))
	// Output:
	// <nil>
	// true
	// 34 <nil>
}

func ExampleTable_Marks() {
	ctx, db := context.Background(), open()
	defer db.Close()
	marks := sqlfence.Table{Dialect: sqlfence.SQLite}
	if err := marks.Create(ctx, db); err != nil {
		fmt.Println(err)
	}
	guard := fence.NewGuard(fence.Config{Marks: marks.Marks(db)})
	fmt.Println(guard.Check(ctx, "report.txt", 34))

	restarted := fence.NewGuard(fence.Config{Marks: marks.Marks(db)})
	fmt.Println(errors.Is(restarted.Check(ctx, "report.txt", 33), fence.ErrStale))
	// Output:
	// <nil>
	// true
}
