//go:build unix

package postgres

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend/internal/storetest"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// accesses counts messages to the server about leases. A batch counts as one.
type accesses struct{ all atomic.Int64 }

func (v *accesses) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "leasekeeper_lease") {
		v.all.Add(1)
	}
	return ctx
}
func (v *accesses) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (v *accesses) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	v.all.Add(1)
	return ctx
}
func (v *accesses) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (v *accesses) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func TestKeeperRenewsManyLeasesInFewStatements(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	count := &accesses{}
	s, err := New(t.Context(), pool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = count }), Config{})
	if err != nil {
		t.Fatal(err)
	}
	reader := pool(t, database, nil)
	held := func(t testing.TB, written clock.Instant) (n int) {
		t.Helper()
		const look = "SELECT count(*) FROM leasekeeper_lease WHERE holder = 'me' AND written_raw >= $1"
		if err := reader.QueryRow(t.Context(), look, written.Raw).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	storetest.KeepsMany(t, storetest.Many{Store: s, Writes: count.all.Load, Held: held})
}

// A batch of renewals locks no row before it writes it. If another transaction changes a row just then, the batch waits for
// it, and does not write over the change.
func TestBatchWritesNoRowThatChangedMeanwhile(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	manySwaps(t, s, database, 0)
	swaps := manySwaps(t, s, database, 2)
	other, err := pool(t, database, nil).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback(context.Background())
	if _, err := other.Exec(t.Context(), "UPDATE leasekeeper_lease SET op = gen_random_uuid() WHERE name = 'held/1'"); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		done []bool
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		done, err := s.SwapAll(t.Context(), swaps)
		answers <- answer{done, err}
	}()
	until(t, "the batch waits for the row", func() bool {
		return queryOne[bool](t, database, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	})
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	for i, w := range swaps {
		changed := w.Record.Name == "held/1"
		f, err := s.Get(t.Context(), w.Record.Name)
		if err != nil || a.done[i] == changed || (f.Record.Op == w.Record.Op) == changed {
			t.Errorf("%s: written: %v; changed meanwhile: %v; %v", w.Record.Name, a.done[i], changed, err)
		}
	}
}
