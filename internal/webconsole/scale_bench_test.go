package webconsole_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/backend/sqlite"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
	"github.com/leasekeeper/leasekeeper/server"
)

const (
	benchHost = "127.0.0.1:8080"
	// manyNames is how many names the benchmarks hold and renew.
	manyNames = 100_000
	// manyTTL is long enough for a slow machine to claim and renew all of them.
	manyTTL = 2 * time.Minute
	// claimers is how many names are claimed at a time.
	claimers = 64
	// browsing is the time between two requests of the benchmark. A person waits longer.
	browsing = 150 * time.Millisecond
)

// manyStores open the stores of the benchmarks.
var manyStores = map[string]func(b *testing.B) backend.Backend{
	"memory": func(*testing.B) backend.Backend { return memory.New().Backend() },
	"sqlite": func(b *testing.B) backend.Backend {
		s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "leases.db"), sqlite.Config{})
		if err != nil {
			b.Fatal(err)
		}
		opened, err := claimed.New(s)
		if err != nil {
			b.Fatal(err)
		}
		return opened
	},
	"server": func(b *testing.B) backend.Backend {
		opened, err := remote.New(remote.Config{Endpoints: []string{endpointstest.Start(b, server.Config{}).Addr}})
		if err != nil {
			b.Fatal(err)
		}
		return opened
	},
}

func manyName(i int) string {
	return fmt.Sprintf("team-%02d/service-%03d/shard-%04d", i%20, i/20%100, i/2000)
}

// holdMany claims all names, and renews them until the benchmark ends.
func holdMany(b *testing.B, store backend.Backend) {
	leases := make([]backend.Lease, manyNames)
	var claiming sync.WaitGroup
	for first := range claimers {
		claiming.Go(func() {
			for i := first; i < manyNames; i += claimers {
				var id backend.ID
				binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixNano()))
				binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
				by := backend.Holder{ID: fmt.Sprintf("worker-%d/%d", i%500, 1000+i%500), Card: backend.Card{Host: fmt.Sprintf("worker-%d", i%500), PID: 1000 + i%500}}
				l, _, err := store.Claim(b.Context(), backend.Claim{ID: id, Name: manyName(i), Holder: by, TTL: manyTTL})
				if err != nil {
					b.Error(err)
					return
				}
				leases[i] = l
			}
		})
	}
	claiming.Wait()
	if b.Failed() {
		b.FailNow()
	}
	ctx, stop := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	renewing.Go(func() { renewMany(ctx, b, store, leases) })
	b.Cleanup(func() {
		stop()
		renewing.Wait()
		if err := store.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
}

// renewMany renews a thousandth of the leases at a time, and all of them each third of the TTL.
func renewMany(ctx context.Context, b *testing.B, store backend.Backend, leases []backend.Lease) {
	for every := time.NewTicker(manyTTL / 3 / 1000); ; {
		for part := range slices.Chunk(leases, manyNames/1000) {
			err := store.Renew(ctx, part, func(i int, r backend.Renewal) {
				if r.Err != nil && ctx.Err() == nil {
					b.Errorf("%s: %v", part[i].Name(), r.Err)
				}
			})
			if err != nil && ctx.Err() == nil {
				b.Error(err)
			}
			select {
			case <-every.C:
			case <-ctx.Done():
				every.Stop()
				return
			}
		}
	}
}

// BenchmarkPagesOf100000Names measures pages of a store whose names are held and renewed meanwhile. Each request comes in
// its own time, so the readings of the store fall between them as they do for people. "with page" has an open page, as a
// browser does, and "alone" has none, as a program that reads JSON.
//
//	go test ./internal/webconsole -run NONE -bench PagesOf100000Names -benchtime 60x
func BenchmarkPagesOf100000Names(b *testing.B) {
	for _, kind := range []string{"memory", "sqlite", "server"} {
		b.Run(kind, func(b *testing.B) {
			store := manyStores[kind](b)
			holdMany(b, store)
			c, cookie := benchConsole(b, store)
			for _, page := range []struct{ name, target string }{
				{"overview", "/"}, {"filter", "/names?q=service-042&state=held"}, {"last page", "/names?from=99950"},
				{"filter as JSON", "/names?q=worker-77&format=json"}, {"host", "/host?host=worker-7"}, {"name", "/name?name=" + manyName(4242)},
			} {
				for _, open := range []bool{true, false} {
					b.Run(fmt.Sprintf("%s/open=%v", page.name, open), func(b *testing.B) { benchPage(b, c, cookie, page.target, open) })
				}
			}
		})
	}
}

func benchConsole(b *testing.B, store backend.Backend) (*webconsole.Console, *http.Cookie) {
	c, err := webconsole.New(webconsole.Config{Store: store, Hosts: []string{benchHost}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	r := httptest.NewRequest(http.MethodGet, "/?token="+c.Token(), nil)
	r.Host = benchHost
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return c, w.Result().Cookies()[0]
}

// benchPage requests one page again and again, and reports the median and the longest time.
func benchPage(b *testing.B, c *webconsole.Console, cookie *http.Cookie, target string, open bool) {
	request := func(ctx context.Context, target string, w http.ResponseWriter) {
		r := httptest.NewRequest(http.MethodGet, target, nil).WithContext(ctx)
		r.Host = benchHost
		r.AddCookie(cookie)
		c.ServeHTTP(w, r)
	}
	ctx, leave := context.WithCancel(b.Context())
	var viewing sync.WaitGroup
	defer viewing.Wait()
	defer leave()
	request(ctx, target, httptest.NewRecorder())
	if open {
		viewing.Go(func() {
			request(ctx, "/updates?"+url.Values{"page": {target}}.Encode(), &deafBrowser{header: make(http.Header)})
		})
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		began := time.Now()
		request(ctx, target, w)
		took = append(took, time.Since(began))
		if w.Code != http.StatusOK {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
		b.StopTimer()
		time.Sleep(browsing)
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}

// deafBrowser takes the updates of an open page and drops them.
type deafBrowser struct{ header http.Header }

func (d *deafBrowser) Header() http.Header            { return d.header }
func (*deafBrowser) WriteHeader(int)                  {}
func (*deafBrowser) Write(b []byte) (int, error)      { return len(b), nil }
func (*deafBrowser) Flush()                           {}
func (*deafBrowser) SetReadDeadline(time.Time) error  { return nil }
func (*deafBrowser) SetWriteDeadline(time.Time) error { return nil }
