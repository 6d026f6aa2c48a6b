package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

const durable = "&_pragma=synchronous(FULL)"

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "leases.db") }

func TestOpenSyncsEveryWrite(t *testing.T) {
	s := opened(t, newPath(t), Config{})
	const extra = 3
	for range readers + 3 { // on every connection
		conn, err := s.file.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var synchronous int
		var journal string
		if err := conn.QueryRowContext(t.Context(), "SELECT (SELECT * FROM pragma_synchronous), (SELECT * FROM pragma_journal_mode)").Scan(&synchronous, &journal); err != nil || synchronous != extra || journal != "wal" {
			t.Fatal(synchronous, journal, err)
		}
	}
}

func TestSettingsThatLoseWritesInAPowerCutAreRefused(t *testing.T) {
	for settings, ok := range map[string]bool{
		"&_pragma=synchronous(OFF)": false, "&_pragma=synchronous(NORMAL)&_pragma=journal_mode(WAL)": false,
		"&_pragma=synchronous(FULL)&_pragma=journal_mode(MEMORY)": false, "&_pragma=synchronous(FULL)&_pragma=journal_mode(OFF)": false,
		"&_pragma=synchronous(FULL)": true, "&_pragma=synchronous(EXTRA)&_pragma=journal_mode(WAL)": true, "&_pragma=synchronous(FULL)&_pragma=journal_mode(TRUNCATE)": true,
	} {
		db := raw(t, newPath(t), settings)
		s, err := New(t.Context(), db, Config{})
		if ok != (err == nil) {
			t.Errorf("%s: %v", settings, err)
		}
		if err == nil {
			_ = s.Close(t.Context())
			continue
		}
		says(t, err, backend.ErrInvalid, "_pragma=", "accept the loss")
		if _, err := New(t.Context(), db, Config{AcceptLoss: true}); err != nil {
			t.Errorf("%s, accepted: %v", settings, err)
		}
	}
	if _, err := New(t.Context(), nil, Config{}); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

// The database of the caller stays open, and its settings stay as they are.
func TestDatabaseOfTheCallerIsLeftOpen(t *testing.T) {
	db := raw(t, newPath(t), durable)
	s, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var journal string
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&journal); err != nil || journal != "delete" {
		t.Error(journal, err)
	}
}

func TestPathsAreTakenLiterally(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a b?c#d%20e.db", "ü.db", "x&_pragma=synchronous(OFF).db"} {
		s := opened(t, filepath.Join(dir, name), Config{})
		mustSwap(t, s, claim.Op{}, record("x", 1))
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
		if s.file.path != filepath.Join(dir, name) {
			t.Errorf("%q is %q", name, s.file.path)
		}
	}
	for path, kind := range map[string]error{"": backend.ErrInvalid, ":memory:": backend.ErrInvalid, dir: backend.ErrInvalid, filepath.Join(dir, "none", "x.db"): backend.ErrUnavailable, "a\x00": backend.ErrInvalid} {
		if _, err := Open(t.Context(), path, Config{}); !errors.Is(err, kind) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "x"), Config{Poll: 1}); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

func TestURLsAreParsed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, url := range []string{"sqlite:a.db", "sqlite:" + dir + "/a.db", "sqlite://" + dir + "/a.db?ns=other&poll=100ms", "sqlite:a%20b.db?prefix=x_"} {
		k, err := leasekeeper.Open(t.Context(), url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if _, err := k.TryAcquire(t.Context(), "jobs/x"); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := k.Shutdown(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	var rows int
	if err := raw(t, filepath.Join(dir, "a.db"), "").QueryRow("SELECT count(*) FROM leasekeeper_lease WHERE name = 'jobs/x'").Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d namespaces have the name, %v", rows, err)
	}
	for _, url := range []string{"sqlite:", "sqlite://host/a.db", "sqlite:a.db?clock=store", "sqlite:a.db?schema=x", "sqlite:a.db?nss=x", "sqlite:a.db?ns=", "sqlite:a.db?poll=1ns", "sqlite:a.db#x"} {
		if _, err := backend.Open(t.Context(), url); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestOtherVersionsOfTheSchemaAreRefused(t *testing.T) {
	path := newPath(t)
	opened(t, path, Config{Namespace: "a"})
	db := raw(t, path, "")
	for version, advice := range map[int]string{sqlstore.Version + 1: "newer leasekeeper", sqlstore.Version - 1: "raise the floor"} { // order: each is checked by itself
		run(t, db, fmt.Sprint("UPDATE leasekeeper_namespace SET version = ", version))
		for _, namespace := range []string{"a", "b"} {
			_, err := Open(t.Context(), path, Config{Namespace: namespace})
			says(t, err, backend.ErrInvalid, fmt.Sprint("version ", version), advice)
		}
	}
}

func TestDeletedNamespaceIsNoticed(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{})
	r := mustSwap(t, s, claim.Op{}, record("x", 1))
	run(t, raw(t, path, ""), "DELETE FROM leasekeeper_namespace")
	_, err := s.Get(t.Context(), "x")
	says(t, err, backend.ErrInvalid, "raise its floor")
	_, err = s.Swap(t.Context(), claim.Swap{Old: r.Op, Record: record("x", 2)})
	says(t, err, backend.ErrInvalid, "raise its floor")
	_, err = s.SwapAll(t.Context(), []claim.Swap{{Old: r.Op, Record: record("x", 2)}})
	says(t, err, backend.ErrInvalid, "raise its floor")
	_, err = s.List(t.Context(), "", "", 10)
	says(t, err, backend.ErrInvalid)
	_, err = s.RaiseFloor(t.Context(), 3)
	says(t, err, backend.ErrInvalid)
}

// A call waits for a locked file for as long as its context and patience allow.
func TestLockedFileIsWaitedFor(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{Patience: 300 * time.Millisecond})
	first := mustSwap(t, s, claim.Op{}, record("x", 1))
	tx, err := raw(t, path, "&_txlock=exclusive").Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "x"); err != nil {
		t.Errorf("a locked file cannot be read: %v", err)
	}
	_, err = s.Swap(t.Context(), claim.Swap{Old: first.Op, Record: record("x", 2)})
	says(t, err, backend.ErrUnavailable, "open transaction")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	patient := opened(t, path, Config{Patience: time.Minute})
	_, err = patient.Swap(ctx, claim.Swap{Old: first.Op, Record: record("x", 2)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its context has ended: %v", err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if done, err := patient.Swap(t.Context(), claim.Swap{Old: first.Op, Record: record("x", 9)}); !done || err != nil {
			t.Errorf("after the lock: %v, %v", done, err)
		}
	})
	time.Sleep(300 * time.Millisecond) // longer than one statement waits
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if f, err := s.Get(t.Context(), "x"); err != nil || f.Record.Token != 9 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestReadOnlyFileRefusesWrites(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{})
	r := mustSwap(t, s, claim.Op{}, record("x", 1))
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=synchronous(FULL)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	reader, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := reader.Get(t.Context(), "x"); err != nil || f.Record.Op != r.Op {
		t.Errorf("%+v, %v", f, err)
	}
	_, err = reader.Swap(t.Context(), claim.Swap{Old: r.Op, Record: record("x", 2)})
	says(t, err, backend.ErrUnavailable, "read-only")
	_, err = New(t.Context(), db, Config{Namespace: "another"})
	says(t, err, backend.ErrUnavailable, "read-only")
	_, err = New(t.Context(), db, Config{Prefix: "another_"})
	says(t, err, backend.ErrInvalid, "leasekeeper schema sqlite")
}

// In a file that cannot grow no record is half written, and writes that need no space succeed.
func TestFullFileHasNoHalfWrittenRecord(t *testing.T) {
	db := raw(t, newPath(t), durable)
	db.SetMaxOpenConns(1)
	s, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	first := mustSwap(t, s, claim.Op{}, record("first", 1))
	run(t, db, "PRAGMA max_page_count = 16")
	big := record("x", 1)
	big.Card.Text = strings.Repeat("x", backend.MaxCardText)
	var last string
	for i := range 100 {
		r := big
		r.Name, r.Op = strings.Repeat("x", i+1), claim.NewOp()
		if _, err = s.Swap(t.Context(), claim.Swap{Record: r}); err != nil {
			last = r.Name
			break
		}
	}
	says(t, err, backend.ErrUnavailable, "make room")
	if f, err := s.Get(t.Context(), last); err != nil || f.Record.Exists() {
		t.Errorf("what was refused is there: %+v, %v", f, err)
	}
	mustSwap(t, s, first.Op, record("first", 2))
	run(t, db, "PRAGMA max_page_count = 1000")
	r := big
	r.Name, r.Op = last, claim.NewOp()
	mustSwap(t, s, claim.Op{}, r)
}

func TestRemovedFileIsNoticed(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{})
	mustSwap(t, s, claim.Op{}, record("x", 1))
	for _, f := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Get(t.Context(), "x")
	says(t, err, backend.ErrUnavailable, "removed or replaced")
	opened(t, path, Config{})
	_, err = s.Swap(t.Context(), claim.Swap{Record: record("y", 1)})
	says(t, err, backend.ErrUnavailable, "removed or replaced")
}

func TestFileThatIsNoDatabaseIsRefused(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database. ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), path, Config{})
	says(t, err, backend.ErrCorrupt, "no SQLite database")
}

// counted counts statements.
type counted struct {
	*file
	mu         sync.Mutex
	statements []string
}

func (c *counted) Query(ctx context.Context, statement string, args ...any) ([][]any, error) {
	c.mu.Lock()
	c.statements = append(c.statements, statement)
	c.mu.Unlock()
	return c.file.Query(ctx, statement, args...)
}

func TestClaimIsTwoStatements(t *testing.T) {
	db := raw(t, newPath(t), durable)
	c := &counted{file: newFile(db, true)}
	shared, err := sqlstore.New(t.Context(), c, sqlstore.SQLite, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := claimed.New(&Store{Store: shared, file: c.file})
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Shutdown(t.Context())
	for _, most := range []int{4, 2, 2} { // of a name that was never leased, and then of one that was released
		c.statements = nil
		l, err := k.TryAcquire(t.Context(), "jobs/x")
		if err != nil || len(c.statements) > most {
			t.Errorf("%d statements: %q, %v", len(c.statements), c.statements, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A hedge of a renewal could only queue behind the renewal, so a keeper sends none.
func TestKeeperSendsNoHedges(t *testing.T) {
	b, err := claimed.New(opened(t, filepath.Join(t.TempDir(), "x.db"), Config{}))
	if err != nil {
		t.Fatal(err)
	}
	if !b.Limits().OneWay {
		t.Error("a keeper would hedge")
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
