//go:build unix

package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// hidden is a connector of pgx's driver whose connections do not show that they are pgx's. Like lib/pq's, they report
// driver.ErrBadConn if the connection is lost, also after the server has carried out the statement.
type hidden struct {
	driver.Connector
	lose *atomic.Bool  // lose the connection after the next update
	runs *atomic.Int64 // updates
}

func (h hidden) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &hiddenConn{Conn: c, hidden: h}, nil
}

type hiddenConn struct {
	driver.Conn
	hidden hidden
}

func (c *hiddenConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err != nil || !strings.HasPrefix(query, "UPDATE") {
		return rows, err
	}
	c.hidden.runs.Add(1)
	if !c.hidden.lose.CompareAndSwap(true, false) {
		return rows, nil
	}
	for dest := make([]driver.Value, len(rows.Columns())); err == nil; {
		err = rows.Next(dest)
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	_ = rows.Close()
	return nil, driver.ErrBadConn
}

func (c *hiddenConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

// A write whose connection was lost may have happened, and is not sent again. The next read shows what became of it.
func TestLostConnectionOfAnotherDriverIsAnUnknownOutcome(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	settings, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	h := hidden{stdlib.GetConnector(*settings), &atomic.Bool{}, &atomic.Int64{}}
	db := sql.OpenDB(h)
	t.Cleanup(func() { _ = db.Close() })
	s := storeOn(t, db, Config{})
	if _, other := s.db.(*otherDriver); !other {
		t.Fatalf("the store runs on a %T", s.db)
	}
	first := swap(t, s, claim.Op{}, record("x", 1))
	second := record("x", 2)
	second.Op = claim.NewOp()
	h.runs.Store(0)
	h.lose.Store(true)
	_, err = s.Swap(t.Context(), claim.Swap{Old: first.Op, Record: second, Extends: true})
	says(t, err, backend.ErrUnknownOutcome)
	if n := h.runs.Load(); n != 1 {
		t.Errorf("the server ran the write %d times", n)
	}
	if f, err := s.Get(t.Context(), "x"); err != nil || f.Record.Op != second.Op {
		t.Errorf("%+v, %v", f, err)
	}
}

// stated is an error of the server as a driver such as lib/pq reports it.
type stated struct{ state, severity string }

func (e stated) Error() string { return e.severity + " " + e.state }
func (e stated) Get(field byte) string {
	return map[byte]string{'C': e.state, 'S': e.severity}[field]
}

// fielded is an error of the server as a driver such as pgdriver reports it.
type fielded map[byte]string

func (e fielded) Error() string           { return e['S'] + " " + e['C'] }
func (e fielded) Field(field byte) string { return e[field] }

// bare is an error of the server as a driver reports it that passes only the state on.
type bare string

func (e bare) Error() string    { return string(e) }
func (e bare) SQLState() string { return string(e) }

// Only an error that certainly ended the statement without effect says that nothing was done.
func TestUncertainErrorsOfOtherDriversAreUnknownOutcomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind error
	}{
		{stated{"40001", "ERROR"}, backend.ErrUnavailable},
		{stated{"53200", "ERROR"}, backend.ErrUnavailable},
		{stated{"42P01", "ERROR"}, backend.ErrInvalid},
		{stated{"42P01", "FEHLER"}, backend.ErrInvalid}, // lc_messages
		{stated{"40001", "FEHLER"}, backend.ErrUnavailable},
		{stated{"57014", "FEHLER"}, backend.ErrUnavailable},
		{fmt.Errorf("wrapped: %w", stated{"23514", "ERROR"}), backend.ErrInvalid},
		{stated{"40003", "ERROR"}, backend.ErrUnknownOutcome},
		{stated{"08006", "ERROR"}, backend.ErrUnknownOutcome},
		{stated{"57P01", "FATAL"}, backend.ErrUnknownOutcome},
		{stated{"40001", "FATAL"}, backend.ErrUnknownOutcome},
		{stated{"53100", "PANIC"}, backend.ErrUnknownOutcome},
		{stated{"53100", "PANIK"}, backend.ErrUnknownOutcome},
		{stated{"57P01", "FEHLER"}, backend.ErrUnknownOutcome},
		{fielded{'C': "53200", 'S': "FEHLER", 'V': "ERROR"}, backend.ErrUnavailable},
		{fielded{'C': "53100", 'S': "PANIK", 'V': "PANIC"}, backend.ErrUnknownOutcome},
		{bare("23505"), backend.ErrUnavailable},
		{bare("53100"), backend.ErrUnknownOutcome},
		{stated{"", ""}, backend.ErrUnknownOutcome},
		{driver.ErrBadConn, backend.ErrUnknownOutcome},
		{io.ErrUnexpectedEOF, backend.ErrUnknownOutcome},
		{context.DeadlineExceeded, backend.ErrUnknownOutcome},
		{errors.New("pq: something new"), backend.ErrUnknownOutcome},
	} {
		if f := failure(c.err); !errors.Is(f.Kind, c.kind) {
			t.Errorf("%v is of kind %v, want %v", c.err, f.Kind, c.kind)
		}
	}
}

func TestArraysReachOtherDriversAsText(t *testing.T) {
	names := []string{"jobs/x", "", "a,b", "{c}", `d"e`, `f\g`, "NULL", "ü"}
	p := pool(t, databases.PostgreSQL(t).Database(t), nil)
	var back []string
	if err := p.QueryRow(t.Context(), "SELECT ($1::text)::text[]", driverValue(names)).Scan(&back); err != nil || fmt.Sprint(back) != fmt.Sprint(names) || len(back) != len(names) {
		t.Errorf("%q came back as %q: %v", names, back, err)
	}
	var numbers []int64
	if err := p.QueryRow(t.Context(), "SELECT ($1::text)::bigint[]", driverValue([]int64{1, -2})).Scan(&numbers); err != nil || fmt.Sprint(numbers) != "[1 -2]" {
		t.Errorf("%v, %v", numbers, err)
	}
}

// However many renewals use the program's connections, one stays free for claims, unless there is only one.
func TestSlotsLeaveClaimsAConnection(t *testing.T) {
	for most, want := range map[int]int{1: 1, 2: 1, 5: 4} { // order: irrelevant, each has its own slots
		s := newPoolSlots(most)
		for range want {
			if _, err := s.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := s.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of %d connections renewals use more than %d: %v", most, want, err)
		}
		cancel()
	}
	leave, err := newPoolSlots(0).enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leave()
}
