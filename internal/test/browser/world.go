package browser

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
)

// World is an invented system that holds names in a cluster of servers, an operator who intervenes, and a console on that cluster.
type World struct {
	Root, Link string // of the console: without and with its token
	stop       context.CancelFunc
	own        sync.WaitGroup
	cluster    *cluster
	stores     []*remote.Backend
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

// NewWorld starts the system and its console. The servers have their data below the folder dir. The caller must call [World.Close].
func NewWorld(ctx context.Context, dir string) (*World, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &World{stop: stop}
	err := w.start(ctx, dir)
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *World) start(ctx context.Context, dir string) (err error) {
	if w.cluster, err = startCluster(ctx, dir); err != nil {
		return err
	}
	for _, m := range members {
		b, err := w.open(appUser)
		if err != nil {
			return err
		}
		for _, name := range m.names {
			w.own.Go(func() { m.compete(ctx, b, name) })
		}
		for i := range 9 {
			shard := m // its turns last, so that most changes are those of names that several want
			shard.turn *= 20
			w.own.Go(func() { shard.compete(ctx, b, fmt.Sprintf("shards/%s-%02d", m.host, i)) })
		}
	}
	operator, err := w.open(operatorUser)
	if err != nil {
		return err
	}
	w.own.Go(func() { operate(ctx, operator) })
	b, err := w.open(rootUser)
	if err != nil {
		return err
	}
	return w.serve(ctx, b)
}

// open returns a client of the cluster for a user. [World.Close] closes it.
func (w *World) open(user string) (*remote.Backend, error) {
	b, err := remote.New(remote.Config{Endpoints: w.cluster.endpoints, Username: user, Password: user})
	if err == nil {
		w.stores = append(w.stores, b)
	}
	return b, err
}

// serve serves the console of a store.
func (w *World) serve(ctx context.Context, b backend.Backend) error {
	l, err := webconsole.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	c, err := webconsole.New(webconsole.Config{Store: b, Label: "leasekeeper://lease-1,lease-2,lease-3/", Write: true, Hosts: webconsole.HostsOf(l)})
	if err != nil {
		return err
	}
	w.Root = "http://" + l.Addr().String() + "/"
	w.Link = w.Root + "?token=" + c.Token()
	w.own.Go(func() { _ = webconsole.Serve(ctx, l, c) })
	return nil
}

// Close ends the system and waits for it.
func (w *World) Close() {
	w.stop()
	w.own.Wait()
	for _, b := range w.stores {
		_ = b.Close(context.Background()) // the servers end anyway
	}
	if w.cluster != nil {
		w.cluster.close()
	}
}

// operate intervenes now and then, as an operator does.
func operate(ctx context.Context, b *remote.Backend) {
	for {
		sleep(ctx, 9*time.Second)
		_ = b.Pin(ctx, "jobs/vacuum", "the index is rebuilt") // fails if nobody holds the name at this moment, as do the others
		sleep(ctx, 4*time.Second)
		_ = b.Revoke(ctx, "search/index", 0, "app-2 is drained", false)
		sleep(ctx, 7*time.Second)
		_ = b.Unpin(ctx, "jobs/vacuum")
		sleep(ctx, 5*time.Second)
		if _ = b.Prefer(ctx, "mail/outbox", "app-1/4711"); ctx.Err() != nil {
			return
		}
	}
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
	_ = b.Release(ctx, l) // else it expires
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
