package browser

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
)

// World is an invented system that holds names in a store in memory, and a console on that store.
type World struct {
	Root, Link string // of the console: without and with its token
	stop       context.CancelFunc
	own        sync.WaitGroup
}

// The claims of the system. A turn is how long a holder keeps a name while others wait.
type member struct {
	host  string
	pid   int
	names []string
	turn  time.Duration
}

var members = []member{
	{"app-1", 4711, []string{"billing/invoices", "billing/reminders", "mail/outbox"}, 7 * time.Second},
	{"app-2", 3120, []string{"billing/invoices", "search/index", "mail/outbox"}, 9 * time.Second},
	{"app-3", 2987, []string{"billing/invoices", "search/index", "reports/weekly"}, 11 * time.Second},
	{"batch-1", 901, []string{"jobs/nightly", "jobs/cleanup", "reports/weekly", "etl/orders", "etl/customers"}, 13 * time.Second},
	{"batch-2", 877, []string{"jobs/nightly", "jobs/vacuum", "etl/orders"}, 8 * time.Second},
}

// NewWorld starts the system and its console.
func NewWorld(ctx context.Context) (*World, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &World{stop: stop}
	store := memory.New()
	b := store.Backend()
	for _, m := range members {
		for _, name := range m.names {
			w.own.Go(func() { m.compete(ctx, store.Backend(), name) })
		}
		for i := range 9 {
			shard := m // its turns last, so that most changes are those of names that several want
			shard.turn *= 20
			w.own.Go(func() { shard.compete(ctx, store.Backend(), fmt.Sprintf("shards/%s-%02d", m.host, i)) })
		}
	}
	l, err := webconsole.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c, err := webconsole.New(webconsole.Config{Store: b, Label: "memory:example", Write: true, Hosts: webconsole.HostsOf(l)})
	if err != nil {
		return nil, err
	}
	w.Root = "http://" + l.Addr().String() + "/"
	w.Link = w.Root + "?token=" + c.Token()
	w.own.Go(func() { _ = webconsole.Serve(ctx, l, c) })
	return w, nil
}

// Close ends the system and waits for it.
func (w *World) Close() {
	w.stop()
	w.own.Wait()
}

// compete claims a name again and again. Every fourth holder stops renewing, as if its process had died.
func (m *member) compete(ctx context.Context, b backend.Backend, name string) {
	card := backend.Card{Host: m.host, PID: m.pid, Started: time.Now().Add(-26 * time.Hour), Text: "version 2.4.1\nregion eu-west"}
	by := backend.Holder{ID: fmt.Sprintf("%s/%d", m.host, m.pid), Card: card}
	for ctx.Err() == nil {
		l, grant, err := b.Claim(ctx, backend.Claim{ID: randomID(), Name: name, Holder: by, TTL: 12 * time.Second, Wait: true})
		if err != nil {
			return
		}
		if !grant.Held {
			if grant, err = m.await(ctx, b, l); err != nil {
				continue
			}
		}
		m.hold(ctx, b, l)
	}
}

func randomID() (id backend.ID) {
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return id
}

// await waits for the turn of a claim, and renews its place meanwhile.
func (m *member) await(ctx context.Context, b backend.Backend, l backend.Lease) (backend.Grant, error) {
	renewing, stop := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() { m.renew(renewing, b, l, time.Hour) })
	defer renewals.Wait()
	defer stop()
	return b.Await(ctx, l)
}

// hold holds a name for a turn, and then releases it or falls silent.
func (m *member) hold(ctx context.Context, b backend.Backend, l backend.Lease) {
	m.renew(ctx, b, l, m.turn+rand.N(m.turn))
	if rand.N(4) == 0 {
		sleep(ctx, 13*time.Second)
		return
	}
	_ = b.Release(ctx, l) // the store is in this process
	sleep(ctx, rand.N(2*time.Second))
}

// renew renews a lease for some time.
func (m *member) renew(ctx context.Context, b backend.Backend, l backend.Lease, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, 4*time.Second) {
		lost := false
		err := b.Renew(ctx, []backend.Lease{l}, func(_ int, r backend.Renewal) { lost = r.Err != nil })
		if err != nil || lost {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
