package ferrettest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/claim"
)

// keeperAt returns a keeper on a store of its own, as of another process.
func keeperAt(t *testing.T, url, holder string) *leasekeeper.Keeper {
	t.Helper()
	k, err := leasekeeper.Open(t.Context(), url, leasekeeper.WithHolder(holder), leasekeeper.WithTTL(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		if err := k.Shutdown(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

// eventually waits for a condition. If it never holds, the test fails.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came to pass that " + what)
		}
	}
}

// firstTicket returns the place of the first ticket of all, and how many there are.
func firstTicket(t *testing.T, tickets *mongo.Collection) (place int64, n int) {
	t.Helper()
	cursor, err := tickets.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ Place int64 }
	if err := cursor.All(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return 0, 0
	}
	return all[0].Place, len(all)
}

// Processes, and the callers in them, get a name by priority, and tokens grow.
func TestPriorityOrdersProcesses(t *testing.T) {
	uri := Start(t).URI()
	url := urlOf(t, uri, "jobs")
	tickets := databaseOf(t, connect(t, uri)).Collection(mongodb.DefaultPrefix + "tickets")
	holder, one, two := keeperAt(t, url, "holder"), keeperAt(t, url, "one"), keeperAt(t, url, "two")
	l, err := holder.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	last := l.Token()
	var group sync.WaitGroup
	for _, c := range []struct {
		by   *leasekeeper.Keeper
		who  string
		p    leasekeeper.Priority
		head leasekeeper.Priority // of the first ticket from then on
	}{{one, "low", -1, -1}, {two, "two", 0, 0}, {one, "high", 7, 7}, {two, "higher", 8, 8}, {one, "middle", 3, 8}} {
		group.Go(func() {
			err := c.by.Run(t.Context(), "x", func(_ context.Context, l *leasekeeper.Lease) error {
				mu.Lock()
				defer mu.Unlock()
				if order = append(order, c.who); l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				time.Sleep(time.Second) // meanwhile the next caller of this process gets its ticket
				return nil
			}, leasekeeper.WithPriority(c.p))
			if err != nil {
				t.Errorf("%s: %v", c.who, err)
			}
		})
		eventually(t, c.who+" waits", func() bool {
			place, n := firstTicket(t, tickets)
			return n > 0 && claim.PriorityOf(place) == c.head
		})
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if want := []string{"higher", "high", "middle", "two", "low"}; !slices.Equal(order, want) {
		t.Errorf("in the order %q, want %q", order, want)
	}
	eventually(t, "all tickets are gone", func() bool { _, n := firstTicket(t, tickets); return n == 0 })
}

// The ticket of a process that has ended without a word costs the next waiter a pause, once.
func TestDeadTicketIsPassedOver(t *testing.T) {
	uri := Start(t).URI()
	url := urlOf(t, uri, "jobs")
	db := databaseOf(t, connect(t, uri))
	dead, err := mongodb.New(t.Context(), db, mongodb.Config{Namespace: "jobs"})
	if err != nil {
		t.Fatal(err)
	}
	queues, err := dead.Queues(t.Context())
	if err == nil {
		_, err = queues.(claim.PriorityQueues).JoinWith(t.Context(), "x", claim.Ticket{Priority: 3})
	}
	if err != nil {
		t.Fatal(err)
	}
	k := keeperAt(t, url, "k")
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	l, err := k.Acquire(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	tickets := db.Collection(mongodb.DefaultPrefix + "tickets")
	eventually(t, "no ticket is left", func() bool { _, n := firstTicket(t, tickets); return n == 0 })
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
