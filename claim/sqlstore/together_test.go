//go:build unix

package sqlstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// poolDB is the simplest DB on PostgreSQL.
type poolDB struct{ *pgxpool.Pool }

func (d poolDB) Query(ctx context.Context, statement string, args ...any) (all [][]any, _ error) {
	rows, err := d.Pool.Query(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		all = append(all, values)
	}
	return all, rows.Err()
}

func (d poolDB) Script(ctx context.Context, statements string) error {
	_, err := d.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
	return err
}

// tried is a swap, and whether it has to happen.
type tried struct {
	about string
	swap  claim.Swap
	done  bool
}

// swapper does swaps in a store.
type swapper struct {
	*testing.T
	*Store
	db poolDB
}

func newSwapper(t *testing.T, c Config) swapper {
	t.Helper()
	config, err := pgxpool.ParseConfig(databases.PostgreSQL(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	return newSwapperOn(t, config, c)
}

// newSwapperOn makes the tables in an empty database.
func newSwapperOn(t *testing.T, config *pgxpool.Config, c Config) swapper {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := poolDB{pool}
	tables, err := Schema(PostgreSQL, "")
	if err == nil {
		err = db.Script(t.Context(), tables)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), db, PostgreSQL, c)
	if err != nil {
		t.Fatal(err)
	}
	s.UseQueues(true)
	return swapper{t, s, db}
}

// made makes a record with a holder, or a vacant one.
func (b swapper) made(name string, token backend.Token, held bool) claim.Record {
	b.Helper()
	r := some
	r.Name, r.Token, r.Op, r.TTL = name, token, claim.NewOp(), time.Minute
	if !held {
		r.Holder = ""
	}
	if done, err := b.Swap(b.Context(), claim.Swap{Record: r}); !done || err != nil {
		b.Fatal(done, err)
	}
	return r
}

// take returns the swap that takes a vacant record, and end the one that ends a tenure.
func take(r claim.Record, change func(*claim.Swap)) claim.Swap {
	w := claim.Swap{Old: r.Op, Record: r, Owner: true, Keeps: true}
	w.Record.Op, w.Record.Holder, w.Record.Token = claim.NewOp(), "taker", r.Token+1
	if change != nil {
		change(&w)
	}
	return w
}

func end(r claim.Record, change func(*claim.Swap)) claim.Swap {
	w := claim.Swap{Old: r.Op, Record: r, Owner: true, Adds: true}
	w.Record.Op, w.Record.Holder, w.Record.Token = claim.NewOp(), "", r.Token+1
	w.Record.Past = append([]backend.Tenure{{Token: r.Token, Holder: backend.Holder{ID: r.Holder}}}, r.Past...)
	if change != nil {
		change(&w)
	}
	return w
}

// do does swaps with one statement, and checks which have happened.
func (b swapper) do(all []tried) {
	b.Helper()
	var batch []*ownerWrite
	for _, w := range all {
		statement, args, _, err := b.swapStatement(w.swap)
		now := b.statements.withoutLockWait(statement)
		if err != nil || now == "" {
			b.Fatal(w.about, err)
		}
		batch = append(batch, &ownerWrite{store: b.Store, name: w.swap.Record.Name, statement: now, args: args, done: make(chan struct{})})
	}
	b.queue.underWay++
	b.commitBatch(b.queue.startBatch(batch))
	for i, w := range batch {
		if w.failed != nil {
			b.Fatal(w.failed)
		}
		if done := len(w.rows) > 0; done != all[i].done {
			b.Errorf("%s: done is %v", all[i].about, done)
		}
	}
}

// together is do, and checks the records too.
func (b swapper) together(all []tried) {
	b.Helper()
	b.do(all)
	for i, w := range all {
		f, err := b.Get(b.Context(), w.swap.Record.Name)
		if err != nil {
			b.Fatal(err)
		}
		want := all[i].swap.Record
		got := f.Record
		if !all[i].done {
			if got.Op == want.Op {
				b.Errorf("%s: the record was written", all[i].about)
			}
			continue
		}
		if fmt.Sprint(got.Past) != fmt.Sprint(want.Past) || fmt.Sprint(got.Pins) != fmt.Sprint(want.Pins) {
			b.Errorf("%s: past %v and pins %v, not %v and %v", all[i].about, got.Past, got.Pins, want.Past, want.Pins)
		}
		got.Past, got.Pins, want.Past, want.Pins = nil, nil, nil, nil
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			b.Errorf("%s: the record is\n%+v, not\n%+v", all[i].about, got, want)
		}
	}
}

// Each swap of a statement is done or not as if it were the only one.
func TestSwapsOfOneStatementAreDecidedEachByItself(t *testing.T) {
	b := newSwapper(t, Config{})
	if _, err := b.RaiseFloor(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.Exec(t.Context(), `INSERT INTO leasekeeper_ticket (ns, name, door) VALUES ('default', 'alone, a ticket', 1), ('default', 'not alone, a ticket', 1), ('other', 'alone', 1)`); err != nil {
		t.Fatal(err)
	}
	wrong := func(w *claim.Swap) { w.Old = claim.NewOp() }
	above := func(w *claim.Swap) { w.Above = true }
	alone := func(w *claim.Swap) { w.Alone = true }
	known := b.made("an addition to a known past", 3, true)
	first := end(known, nil)
	if done, err := b.Swap(t.Context(), first); !done || err != nil {
		t.Fatal(done, err)
	}
	known = first.Record
	retaken := take(known, nil)
	if done, err := b.Swap(t.Context(), retaken); !done || err != nil {
		t.Fatal(done, err)
	}
	gone := some
	gone.Name, gone.Op = "no record", claim.NewOp()
	b.together([]tried{
		{"a claim", take(b.made("a claim", 5, false), nil), true},
		{"a claim of another op", take(b.made("a claim of another op", 5, false), wrong), false},
		{"a claim of a held name", take(b.made("a claim of a held name", 5, true), nil), false},
		{"a claim without a record", take(gone, nil), false},
		{"above the floor", take(b.made("above the floor", 100, false), above), true},
		{"at the floor", take(b.made("at the floor", 99, false), above), false},
		{"below the floor, not compared", take(b.made("below the floor, not compared", 5, false), nil), true},
		{"alone", take(b.made("alone", 5, false), alone), true},
		{"alone, a ticket", take(b.made("alone, a ticket", 5, false), alone), false},
		{"not alone, a ticket", take(b.made("not alone, a ticket", 5, false), nil), true},
		{"a release", end(b.made("a release", 5, true), nil), true},
		{"a release of another op", end(b.made("a release of another op", 5, true), wrong), false},
		{"an addition to a known past", end(retaken.Record, nil), true},
		{"a takeover", end(b.made("a takeover", 5, true), func(w *claim.Swap) { w.Record.Holder, w.Record.Pins = "other", nil }), true},
	})
}

// In store-clock mode the database judges, for each swap, whether a lease has ended.
func TestSwapsOfOneStatementAreJudgedByTheClockOfTheDatabase(t *testing.T) {
	b := newSwapper(t, Config{StoreClock: true})
	over, lasts := b.made("over", 5, true), b.made("lasts", 5, true)
	if _, err := b.db.Exec(t.Context(), `UPDATE leasekeeper_lease SET written_at = written_at - interval '1 hour' WHERE name = 'over'`); err != nil {
		t.Fatal(err)
	}
	ended := func(w *claim.Swap) { w.Ended = true }
	b.together([]tried{
		{"a lease that has ended", end(over, ended), true},
		{"a lease that lasts", end(lasts, ended), false},
		{"a vacant record", end(b.made("vacant", 5, false), ended), true},
		{"a release of a lease that lasts", end(b.made("released", 5, true), nil), true},
	})
}

// A namespace of another mode, and a connection whose commits a crash may undo, are not written by any statement.
func TestSeveralSwapsNeedTheModeAndDurableCommits(t *testing.T) {
	b := newSwapper(t, Config{})
	swaps := func(round string, done bool) []tried {
		return []tried{{"one", take(b.made("one"+round, 5, false), nil), done}, {"two", end(b.made("two"+round, 5, true), nil), done}}
	}
	mode := func(mode string) {
		if _, err := b.db.Exec(t.Context(), `UPDATE leasekeeper_namespace SET mode = $1`, mode); err != nil {
			t.Fatal(err)
		}
	}
	all := swaps("a", false)
	mode(modeStore)
	b.do(all)
	mode(modeWriter)
	b.do(swaps("b", true))
	all = swaps("c", false)
	var database string
	if err := b.db.QueryRow(t.Context(), `SELECT current_database()`).Scan(&database); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.Exec(t.Context(), `ALTER DATABASE `+database+` SET synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	b.db.Reset() // the setting is for new connections
	b.do(all)
}

// A row that another transaction has locked delays no other swap of the statement, and is not written.
func TestLockedRowDelaysNoOtherSwapOfItsStatement(t *testing.T) {
	b := newSwapper(t, Config{})
	gated, free, taken := b.made("gated", 5, true), b.made("free", 5, true), b.made("taken", 5, false)
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM leasekeeper_lease WHERE name = 'gated' FOR KEY SHARE`); err != nil {
		t.Fatal(err)
	}
	b.together([]tried{{"a gated name", end(gated, nil), false}, {"a free name", end(free, nil), true}, {"a claim", take(taken, nil), true}})
}

// Statements for the same names in different orders never wait for each other, and each swap of one op is done once.
func TestStatementsForTheSameNamesDoNotDeadlock(t *testing.T) {
	b := newSwapper(t, Config{})
	const names, rounds, writers = 16, 10, 4
	for round := range rounds {
		var records []claim.Record
		for i := range names {
			records = append(records, b.made(fmt.Sprint(round, "/", i), 5, i%2 == 0))
		}
		done := make(chan int, writers*names)
		finished := make(chan struct{}, writers)
		for w := range writers {
			var batch []*ownerWrite
			for i := range records {
				r := records[(i*(2*w+1))%names] // another order for each
				s := take(r, nil)
				if r.Held() {
					s = end(r, nil)
				}
				statement, args, _, err := b.swapStatement(s)
				if err != nil {
					t.Fatal(err)
				}
				batch = append(batch, &ownerWrite{store: b.Store, name: r.Name, statement: b.statements.withoutLockWait(statement), args: args, done: make(chan struct{})})
			}
			b.queue.mu.Lock()
			b.queue.underWay++
			b.queue.startBatch(batch)
			b.queue.mu.Unlock()
			go func() {
				b.commitBatch(batch)
				for i, w := range batch {
					if w.failed != nil {
						t.Error(w.failed)
					}
					if len(w.rows) > 0 {
						done <- i
					}
				}
				finished <- struct{}{}
			}()
		}
		for range writers {
			select {
			case <-finished:
			case <-time.After(time.Minute):
				t.Fatal("the statements wait for each other")
			}
		}
		if len(done) > names {
			t.Fatalf("%d swaps of %d records were done", len(done), names)
		}
	}
}
