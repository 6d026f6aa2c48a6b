//go:build unix

package postgres

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// The tables as the programs create them. Those of the other schemas look alike and are others.
const (
	gooseTable = `CREATE TABLE goose_lock (lock_id bigint NOT NULL PRIMARY KEY, locked boolean NOT NULL DEFAULT false, locked_at timestamptz NULL,
		locked_by text NULL, lease_expires_at timestamptz NULL, updated_at timestamptz NULL)`
	shedTable  = `CREATE TABLE shedlock (name varchar(64) NOT NULL PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)`
	shedInZone = `CREATE TABLE ops.shedlock (name varchar(64) NOT NULL PRIMARY KEY, lock_until timestamptz NOT NULL, locked_at timestamptz NOT NULL, locked_by varchar(255) NOT NULL)`
	notShed    = `CREATE TABLE other.shedlock (name varchar(64) NOT NULL PRIMARY KEY, lock_until bigint NOT NULL, locked_at bigint NOT NULL, locked_by varchar(255) NOT NULL)`
	notGoose   = `CREATE TABLE other.goose_lock (lock_id bigint NOT NULL PRIMARY KEY, locked boolean)`
)

func foreignLocks(t *testing.T, s *Store, limit int) ([]backend.ForeignLock, bool) {
	t.Helper()
	locks, more, err := s.ForeignLocks(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return locks, more
}

func TestLocksOfGooseAndShedLockAreListed(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	if locks, more := foreignLocks(t, s, 10); len(locks) != 0 || more {
		t.Errorf("a database without other programs has %+v, %v", locks, more)
	}
	run(t, database, "CREATE SCHEMA ops", "CREATE SCHEMA other", gooseTable, shedTable, shedInZone, notShed, notGoose,
		`INSERT INTO goose_lock VALUES (1, true, now(), 'migrator-a', now() + interval '30 seconds', now()), (2, false, NULL, NULL, NULL, now()),
			(3, true, now() - interval '2 minutes', 'gone', now() - interval '1 minute', now() - interval '2 minutes')`,
		`INSERT INTO shedlock VALUES ('report', timezone('utc', now()) + interval '5 minutes', timezone('utc', now()), 'app-1'),
			('done', timezone('utc', now()), timezone('utc', now()) - interval '1 minute', 'app-2')`,
		`INSERT INTO ops.shedlock VALUES ('cleanup', now() + interval '10 minutes', now(), 'app-3')`,
		`INSERT INTO other.shedlock VALUES ('no', 9999999999999, 0, 'nobody')`, `INSERT INTO other.goose_lock VALUES (9, true)`)
	locks, more := foreignLocks(t, s, 10)
	if more || len(locks) != 3 {
		t.Fatalf("%+v, %v", locks, more)
	}
	for i, want := range []struct {
		kind, name, holder, text string
		ttl                      time.Duration
	}{
		{"ShedLock", "cleanup", "app-3", "table ops.shedlock", 10 * time.Minute},
		{"ShedLock", "report", "app-1", "table public.shedlock", 5 * time.Minute},
		{"goose", "1", "migrator-a", "table public.goose_lock", 30 * time.Second},
	} {
		l := locks[i]
		if l.Kind != want.kind || l.Name != want.name || l.Holder != want.holder || l.Text != want.text || l.TTL != want.ttl || l.Waiting != -1 {
			t.Errorf("lock %d is %+v", i, l)
		}
		if l.Remaining <= want.ttl-20*time.Second && want.ttl > time.Minute || l.Remaining > want.ttl {
			t.Errorf("%s lasts for %v of %v", l.Name, l.Remaining, l.TTL)
		}
		if age := time.Since(l.Since); age < -time.Minute || age > time.Minute {
			t.Errorf("%s was taken at %v", l.Name, l.Since)
		}
	}
	if locks, more := foreignLocks(t, s, 2); len(locks) != 2 || !more {
		t.Errorf("two of three are %+v, %v", locks, more)
	}
	if _, _, err := s.ForeignLocks(t.Context(), 0); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a list of none: %v", err)
	}
}

func TestSessionLockOfGooseIsListed(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	p := pool(t, database, nil)
	holding, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holding.Release()
	if _, err := holding.Exec(t.Context(), "SELECT pg_advisory_lock("+gooseSession+"), pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := p.Exec(ctx, "SELECT pg_advisory_lock("+gooseSession+")")
		waited <- err
	}()
	defer func() { leave(); <-waited }()
	var locks []backend.ForeignLock
	until(t, "the other session waits", func() bool {
		locks, _ = foreignLocks(t, s, 10)
		return len(locks) == 1 && locks[0].Waiting == 1
	})
	pid := strconv.Itoa(int(holding.Conn().PgConn().PID()))
	if l := locks[0]; l.Kind != "goose" || !strings.HasSuffix(l.Holder, " "+pid) || l.Remaining >= 0 || l.TTL != 0 {
		t.Errorf("%+v", l)
	}
}

// A user without rights to a table of another program sees the locks of the others.
func TestTablesWithoutRightsAreNotRead(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	limited := user(t, database, "limited")
	run(t, database, "GRANT ALL ON SCHEMA public TO limited", "CREATE SCHEMA ops", shedTable, shedInZone, "GRANT SELECT ON shedlock TO limited",
		`INSERT INTO shedlock VALUES ('report', timezone('utc', now()) + interval '5 minutes', timezone('utc', now()), 'app-1')`,
		`INSERT INTO ops.shedlock VALUES ('cleanup', now() + interval '10 minutes', now(), 'app-3')`)
	s := opened(t, limited, Config{})
	locks, _ := foreignLocks(t, s, 10)
	if len(locks) != 1 || locks[0].Name != "report" || !slices.Contains(s.ForeignKinds(), locks[0].Kind) {
		t.Errorf("%+v", locks)
	}
}
