package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// rowName names the lock that programs write by hand in an SQL database: a row with a holder and an end, by the clock
// of the database.
const rowName = "expiring row"

// rowStatements are the statements of the lock. Their arguments are the name or the names, the holder, and for take and
// extend the TTL in seconds.
type rowStatements struct {
	table, add, take, free, extend string
}

var postgresRow = rowStatements{
	table:  `CREATE TABLE IF NOT EXISTS lock (name text PRIMARY KEY, holder text NOT NULL, expires timestamptz NOT NULL) WITH (fillfactor = 70)`,
	add:    `INSERT INTO lock (name, holder, expires) VALUES ($1, '', '-infinity') ON CONFLICT DO NOTHING`,
	take:   `UPDATE lock SET holder = $2, expires = now() + $3 * interval '1 second' WHERE name = $1 AND expires < now()`,
	free:   `UPDATE lock SET holder = '', expires = '-infinity' WHERE name = $1 AND holder = $2`,
	extend: `UPDATE lock SET expires = now() + $3 * interval '1 second' WHERE name = ANY ($1) AND holder = $2 AND expires > now()`,
}

var sqliteRow = rowStatements{
	table:  `CREATE TABLE IF NOT EXISTS lock (name TEXT PRIMARY KEY, holder TEXT NOT NULL, expires REAL NOT NULL)`,
	add:    `INSERT INTO lock (name, holder, expires) VALUES (?1, '', 0) ON CONFLICT DO NOTHING`,
	take:   `UPDATE lock SET holder = ?2, expires = unixepoch('subsec') + ?3 WHERE name = ?1 AND expires < unixepoch('subsec')`,
	free:   `UPDATE lock SET holder = '', expires = 0 WHERE name = ?1 AND holder = ?2`,
	extend: `UPDATE lock SET expires = unixepoch('subsec') + ?3 WHERE name IN (SELECT value FROM json_each(?1)) AND holder = ?2 AND expires > unixepoch('subsec')`,
}

// execute runs one statement and returns how many rows it changed.
type execute func(ctx context.Context, statement string, args ...any) (int64, error)

// rowUsers lock rows. One goroutine extends all rows that they hold, with one statement each third of the TTL.
type rowUsers struct {
	rowStatements
	execute execute
	names   func([]string) (any, error) // the argument of extend
	ttl     time.Duration
	end     func() // of the connections

	stop context.CancelFunc
	over sync.WaitGroup
	mu   sync.Mutex
	held map[string]bool // names
	n    int             // how often held has changed
	lost error           // why a lock ended early
}

// openRows opens the rows of a database on PostgreSQL.
func openRows(ctx context.Context, place string, p plan) (users, error) {
	config, err := pgxpool.ParseConfig(place)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(4 * p.connections) // as many as our Keepers have
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, statement string, args ...any) (int64, error) {
		done, err := pool.Exec(ctx, statement, args...)
		return done.RowsAffected(), err
	}
	names := func(names []string) (any, error) { return names, nil }
	return newRowUsers(ctx, &rowUsers{rowStatements: postgresRow, execute: run, names: names, ttl: p.ttl, end: pool.Close})
}

// openFileRows opens the rows of a SQLite file that is as durable as that of a Keeper.
func openFileRows(ctx context.Context, place string, p plan) (users, error) {
	source := url.URL{Scheme: "file", Path: place, RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer, and those that wait for it sleep
	run := func(ctx context.Context, statement string, args ...any) (int64, error) {
		done, err := db.ExecContext(ctx, statement, args...)
		if err != nil {
			return 0, err
		}
		return done.RowsAffected()
	}
	return newRowUsers(ctx, &rowUsers{rowStatements: sqliteRow, execute: run, names: jsonNames, ttl: p.ttl, end: func() { _ = db.Close() }})
}

func newRowUsers(ctx context.Context, u *rowUsers) (users, error) {
	if _, err := u.execute(ctx, u.table); err != nil {
		u.end()
		return nil, err
	}
	u.held = make(map[string]bool)
	ctx, u.stop = context.WithCancel(ctx)
	u.over.Go(func() { u.extendAll(ctx) })
	return u, nil
}

func (u *rowUsers) close() {
	u.stop()
	u.over.Wait()
	u.end()
}

// extendAll extends the rows that are held, until ctx ends.
func (u *rowUsers) extendAll(ctx context.Context) {
	for {
		if pause(ctx, u.ttl/renewedAt); ctx.Err() != nil {
			return
		}
		names, before := u.locked()
		if len(names) == 0 {
			continue
		}
		arg, err := u.names(names)
		if err == nil {
			var extended int64
			extended, err = u.execute(ctx, u.extend, arg, rowHolder, u.ttl.Seconds())
			if _, after := u.locked(); err == nil && before == after && extended != int64(len(names)) {
				err = fmt.Errorf("%d of %d rows were extended", extended, len(names))
			}
		}
		if err != nil && ctx.Err() == nil {
			u.mu.Lock()
			u.lost = err
			u.mu.Unlock()
		}
	}
}

// locked returns the names that are held, and how often they have changed.
func (u *rowUsers) locked() (names []string, changes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.held)), u.n
}

// set notes that a name is held or not.
func (u *rowUsers) set(name string, held bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
	if u.held[name] = true; !held {
		delete(u.held, name)
	}
}

func (u *rowUsers) locker(_ int, name string) locker { return &rowLocker{rowUsers: u, name: name} }

// rowLocker locks one row. There is no token, and all users of a program have one holder.
type rowLocker struct {
	*rowUsers
	name  string
	added bool // the row exists
}

// rowHolder is the holder of all rows of this program.
const rowHolder = "bench"

// Lock takes a row that has expired. It adds the row first.
func (l *rowLocker) Lock(ctx context.Context) error {
	if !l.added {
		if _, err := l.execute(ctx, l.add, l.name); err != nil {
			return err
		}
		l.added = true
	}
	for {
		taken, err := l.execute(ctx, l.take, l.name, rowHolder, l.ttl.Seconds())
		if err != nil {
			return err
		}
		if taken == 1 {
			l.set(l.name, true)
			return nil
		}
		if pause(ctx, goosePoll); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (l *rowLocker) Unlock(ctx context.Context) error {
	l.set(l.name, false)
	freed, err := l.execute(ctx, l.free, l.name, rowHolder)
	if err == nil && freed != 1 {
		err = fmt.Errorf("%s no longer belongs to %s", l.name, rowHolder)
	}
	return err
}

func (l *rowLocker) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// jsonNames returns names as SQLite reads them.
func jsonNames(names []string) (any, error) {
	text, err := json.Marshal(names)
	return string(text), err
}
