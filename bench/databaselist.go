package main

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for goose
	gooselock "github.com/pressly/goose/v3/lock"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/postgres" // postgres://
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"   // sqlite:
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// gooseName is the reference on PostgreSQL. goose keeps a row with an end for each lock, and extends it, so it is the
// nearest to our leases.
const gooseName = "goose's table lock"

func databaseList() []database {
	return []database{
		{
			reference: gooseName,
			handOver:  "50",
			prepare: func(_ context.Context, s *stage, _ progress) error {
				return s.do(func() { s.postgres = databases.NewPostgreSQL(s) })
			},
			place: func(s *stage) (place string, err error) {
				err = s.do(func() { place = s.postgres.Database(s) })
				return place, err
			},
			used:       (*stage).postgresTime,
			crowds:     []crowd{{2, 1}, {50, 1}, {100, 1}, {50, 10}},
			crowdGoals: true,
			lockGoal:   "3x",
			keptGoals:  true,
			ways: []way{
				keeperWay("keeper on PostgreSQL", func(place string) string { return place }),
				{name: gooseName, open: openGoose},
				{name: rowName, open: openRows, keeps: true},
				{name: "advisory lock", open: openAdvisory},
			},
		},
		{
			reference: "flock",
			handOver:  "50",
			runs:      true,
			place:     func(s *stage) (string, error) { return s.file(), nil },
			ways: []way{
				keeperWay("keeper on SQLite", func(place string) string { return "sqlite:" + place }),
				{name: rowName, open: openFileRows, keeps: true},
				{name: "flock", open: openFlock},
			},
		},
		mongoDatabase(),
	}
}

func keeperWay(name string, store func(place string) string) way {
	renewer := func(ctx context.Context, place string, number, leases int) (renewer, error) {
		return newKeeperRenewer(ctx, store(place), number, leases)
	}
	return way{name: name, renewer: renewer, store: store, keeps: true, open: func(ctx context.Context, place string, p plan) (users, error) {
		var opened keepers
		for range p.connections {
			k, err := leasekeeper.Open(ctx, store(place), leasekeeper.WithTTL(p.ttl))
			if err != nil {
				opened.close()
				return nil, err
			}
			opened = append(opened, k)
		}
		return opened, nil
	}}
}

// lockKey makes the key of a lock from its name.
func lockKey(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return int64(h.Sum64() >> 1)
}

// gooseUsers share connections.
type gooseUsers struct {
	db  *sql.DB
	ttl time.Duration
}

// goosePoll is the pause between two looks of a waiter. It is that of our Keeper.
const goosePoll = 500 * time.Millisecond

func openGoose(_ context.Context, place string, p plan) (users, error) {
	db, err := sql.Open("pgx", place)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4 * p.connections) // as many as our Keepers have
	db.SetMaxIdleConns(4 * p.connections)
	return gooseUsers{db, p.ttl}, nil
}

func (u gooseUsers) close() { _ = u.db.Close() } // the database is thrown away

func (u gooseUsers) locker(_ int, name string) locker {
	return &gooseLocker{users: u, name: name}
}

type gooseLocker struct {
	users gooseUsers
	name  string
	lock  gooselock.Locker
}

func (l *gooseLocker) Lock(ctx context.Context) (err error) {
	if l.lock == nil {
		const always = 1 << 20
		l.lock, err = gooselock.NewPostgresTableLocker(gooselock.WithTableLockID(lockKey(l.name)),
			gooselock.WithTableLeaseDuration(l.users.ttl), gooselock.WithTableHeartbeatInterval(l.users.ttl/3),
			gooselock.WithTableLockTimeout(goosePoll, always))
		if err != nil {
			return err
		}
	}
	return l.lock.Lock(ctx, l.users.db)
}

func (l *gooseLocker) Unlock(ctx context.Context) error { return l.lock.Unlock(ctx, l.users.db) }
func (l *gooseLocker) Check() error                     { return nil } // it cannot tell

// advisoryUsers have a session each, because the lock is the session's.
type advisoryUsers struct{ pool *pgxpool.Pool }

func openAdvisory(ctx context.Context, place string, p plan) (users, error) {
	config, err := pgxpool.ParseConfig(place)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 100
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return advisoryUsers{pool}, nil
}

func (u advisoryUsers) close() { u.pool.Close() }

func (u advisoryUsers) locker(_ int, name string) locker {
	return &advisoryLocker{pool: u.pool, key: lockKey(name)}
}

type advisoryLocker struct {
	pool *pgxpool.Pool
	key  int64
	conn *pgxpool.Conn
}

func (l *advisoryLocker) Lock(ctx context.Context) (err error) {
	if l.conn, err = l.pool.Acquire(ctx); err != nil {
		return err
	}
	_, err = l.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", l.key)
	if err != nil {
		l.conn.Release()
	}
	return err
}

func (l *advisoryLocker) Unlock(ctx context.Context) error {
	defer l.conn.Release()
	_, err := l.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", l.key)
	return err
}

func (l *advisoryLocker) Check() error { return nil } // it is lost with the connection

// flockUsers lock files in a directory.
type flockUsers struct{ dir string }

func openFlock(_ context.Context, place string, _ plan) (users, error) {
	return flockUsers{place}, os.MkdirAll(place, 0o700)
}

func (flockUsers) close() {}

func (u flockUsers) locker(_ int, name string) locker {
	return &flockLocker{path: u.dir + "/" + strconv.FormatInt(lockKey(name), 16)}
}

type flockLocker struct {
	path string
	file *os.File
}

// Lock waits in the kernel, where no context ends it: the holder of the lock lets go in the end.
func (l *flockLocker) Lock(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	for {
		if err = syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (l *flockLocker) Unlock(context.Context) error { return l.file.Close() }
func (l *flockLocker) Check() error                 { return nil }
