//go:build unix

package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// batches counts the statements that do several swaps, and their swaps.
type batches struct{ all, swaps atomic.Int64 }

func (b *batches) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(d.SQL, "unnest") {
		return ctx
	}
	for _, arg := range d.Args {
		if names, ok := arg.([]string); ok { // the first array has the names
			b.all.Add(1)
			b.swaps.Add(int64(len(names)))
			break
		}
	}
	return ctx
}

func (b *batches) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Many goroutines claim and release names of their own and shared names. Their writes share batches, each receives the
// outcome of its own write, and the tables show what each has written.
func TestConcurrentWritesShareBatches(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	const stores, names, turns = 2, 12, 20
	count := &batches{}
	var inside [names]atomic.Int64 // holders of each shared name
	var all sync.WaitGroup
	for store := range stores {
		s, err := New(t.Context(), pool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = count, 4 }), Config{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := claim.NewClient(s, claim.Options{Attempts: 50})
		if err != nil {
			t.Fatal(err)
		}
		for i := range names {
			all.Go(func() {
				own, last := fmt.Sprintf("own/%d/%d", store, i), backend.Token(0)
				for range turns {
					l, err := c.Claim(t.Context(), request(own, "me", time.Minute))
					if err != nil || l.Token() <= last {
						t.Errorf("%s: %v after %d, %v", own, l, last, err)
						return
					}
					last = l.Token()
					if err := c.Release(t.Context(), l); err != nil {
						t.Error(err)
					}
				}
				for range turns / 4 {
					l, err := take(t.Context(), c, request(fmt.Sprint("shared/", i), "me", time.Minute))
					if err != nil {
						t.Error(err)
						return
					}
					if n := inside[i].Add(1); n != 1 {
						t.Errorf("%d hold %s", n, l.Name())
					}
					inside[i].Add(-1)
					if err := c.Release(t.Context(), l); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if count.swaps.Load() < 2*count.all.Load() || count.all.Load() == 0 {
		t.Errorf("%d swaps were sent in %d batches", count.swaps.Load(), count.all.Load())
	}
	states, err := opened(t, database, Config{}).List(t.Context(), "", "", 1000)
	if err != nil || len(states) != (stores+1)*names {
		t.Fatalf("%d names, %v", len(states), err)
	}
	for _, s := range states {
		r := s.Record
		if r.Held() || len(r.Past) == 0 || r.Past[0].Token != r.Token-1 {
			t.Errorf("%+v", r)
		}
		for i := 1; i < len(r.Past); i++ {
			if r.Past[i].Token != r.Past[i-1].Token-2 {
				t.Errorf("%s: tenure %d is followed by %d", r.Name, r.Past[i].Token, r.Past[i-1].Token)
			}
		}
	}
}

// Releases of gated leases wait for the gated transactions. Other releases and claims do not wait with them.
func TestGatedReleasesDelayNoOtherWrite(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	const gated, free = 4, 16
	s, err := New(t.Context(), pool(t, database, func(c *pgxpool.Config) { c.MaxConns = gated + 4 }), Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := pool(t, database, func(c *pgxpool.Config) { c.MaxConns = gated + 1 })
	var leases []*claim.Lease
	var held []pgx.Tx
	for i := range gated + free {
		l, err := c.Claim(t.Context(), request(fmt.Sprint("jobs/", i), "me", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if i < gated {
			tx := begin(t, p, pgx.TxOptions{})
			if err := GateClaim(t.Context(), tx, l); err != nil {
				t.Fatal(err)
			}
			held = append(held, tx)
		}
		leases = append(leases, l)
	}
	var waiting, others sync.WaitGroup
	var early atomic.Bool
	early.Store(true)
	for i, l := range leases {
		releases := &others
		if i < gated {
			releases = &waiting
		}
		releases.Go(func() {
			if err := c.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
			if i < gated && early.Load() {
				t.Errorf("%s was released while a transaction was gated on it", l.Name())
			}
		})
	}
	others.Wait()
	for range free { // claims do not wait either
		l, err := c.Claim(t.Context(), request("jobs/next", "me", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	early.Store(false)
	for _, tx := range held {
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
	waiting.Wait()
}
