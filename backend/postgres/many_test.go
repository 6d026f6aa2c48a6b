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
