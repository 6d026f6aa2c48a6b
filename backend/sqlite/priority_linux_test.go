package sqlite

import (
	"errors"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

// ticketFiles opens the queues of a new file several times, as several processes do.
func ticketFiles(t *testing.T, n int) (all []*ticketFile) {
	t.Helper()
	path := newPath(t) + ticketSuffix
	database, err := os.Stat(emptyFile(t, newPath(t)))
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		f, err := openTickets(path, database)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.close() })
		all = append(all, f)
	}
	return all
}

// The places of all priorities and queues have bytes of their own, in the order of the queue.
func TestEachPriorityHasPlacesOfItsOwn(t *testing.T) {
	last := int64(lockOf(queueCount-1, math.MaxUint32))
	for _, queue := range []uint32{0, 1, queueCount - 1} {
		for _, p := range []backend.Priority{math.MaxInt16, math.MaxInt16 - 1, 1, -1, math.MinInt16} {
			for _, n := range []int64{1, 2, rankedPlaces - 1} {
				at := rankedByte(queue, p, n)
				if at <= last {
					t.Errorf("ticket %d of priority %d in queue %d has byte %d after %d", n, p, queue, at, last)
				}
				last = at
				if place := placeOf(at); place != claim.FirstPlace(p)+n || claim.PriorityOf(place) != p || numberOf(place) != n {
					t.Errorf("ticket %d of priority %d has place %d, of priority %d", n, p, place, claim.PriorityOf(place))
				}
			}
		}
	}
	for _, place := range []int64{1, 2, math.MaxUint32} {
		if claim.PriorityOf(place) != 0 || numberOf(place) != place {
			t.Errorf("place %d has the priority %d", place, claim.PriorityOf(place))
		}
	}
}

// The head is the ticket of the highest priority that was not passed over. If more priorities have passed tickets than the
// notes keep, the oldest counts again.
func TestHeadIsOfTheHighestPriority(t *testing.T) {
	all := ticketFiles(t, 8)
	viewer, others := all[7], all[:7]
	const queue = 5
	priorities := []backend.Priority{0, -3, 1, 7, 2, 3, math.MinInt16}
	places := make([]int64, len(priorities))
	for i, p := range priorities {
		var err error
		if places[i], err = others[i].join(queue, p); err != nil || claim.PriorityOf(places[i]) != p || numberOf(places[i]) != 1 {
			t.Fatalf("priority %d has place %d, %v", p, places[i], err)
		}
	}
	head := func(want int) {
		t.Helper()
		place, found, err := viewer.head(queue, behindAll)
		if err != nil || found != (want >= 0) || found && place != places[want] {
			t.Errorf("the head is %d, %v, %v: want ticket %d", place, found, err, want)
		}
	}
	for i, place := range places { // each sees those before it
		first, found, err := others[i].head(queue, place)
		if err != nil || found != (i != 3) || found && first != places[3] {
			t.Errorf("the head before ticket %d is %d, %v, %v", i, first, found, err)
		}
	}
	for _, next := range []int{3, 5, 4, 2, 0} { // passed over, and the next is the head
		head(next)
		if err := viewer.pass(queue, places[next]); err != nil {
			t.Fatal(err)
		}
		if counts, err := others[next].counts(queue, places[next]); counts || err != nil {
			t.Errorf("ticket %d was passed over, and counts: %v", next, err)
		}
	}
	head(1)
	if err := viewer.pass(queue, places[1]); err != nil { // the fifth priority
		t.Fatal(err)
	}
	head(3)
	again, err := all[7].join(queue, 2)
	if err != nil || again != places[4]+1 {
		t.Errorf("after a ticket that was passed over the next has place %d, %v", again, err)
	}
	for i, f := range others {
		if err := f.leave(queue, places[i]); err != nil {
			t.Fatal(err)
		}
	}
	if place, found, err := others[0].head(queue, behindAll); !found || place != again || err != nil {
		t.Errorf("the one that is left is %d, %v, %v", place, found, err)
	}
}

// The numbers of a priority begin again when they are nearly used up and no process waits.
func TestNumbersOfAPriorityBeginAgain(t *testing.T) {
	all := ticketFiles(t, 2)
	if err := all[0].pass(0, claim.FirstPlace(4)+rankedPlaces/2+1); err != nil {
		t.Fatal(err)
	}
	place, err := all[0].join(0, 4)
	if err != nil || numberOf(place) != 1 {
		t.Errorf("place %d, %v", place, err)
	}
	if err := all[0].lockByte(rankedByte(0, 4, rankedPlaces-1), unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if place, err := all[1].join(0, 4); err == nil {
		t.Errorf("place %d was taken after the last", place)
	}
}

// Processes, and the callers in them, get a name by priority, and tokens grow.
func TestPriorityOrdersProcesses(t *testing.T) {
	path := newPath(t)
	holder, one, two := keeper(t, path, "holder"), keeper(t, path, "one"), keeper(t, path, "two")
	s := opened(t, path, Config{})
	f, err := openTickets(path+ticketSuffix, s.file.info)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	keepertest.PriorityOrdersProcesses(t, holder, one, two, func(_ int, who string, first leasekeeper.Priority) {
		until(t, who+" waits", func() bool {
			place, found, err := f.head(s.queueOf("x"), behindAll)
			return err == nil && found && claim.PriorityOf(place) == first
		})
	})
}

// Where there is no queue of processes, a priority is refused, and nothing is left in the store.
func TestPriorityNeedsAQueue(t *testing.T) {
	path := newPath(t)
	if err := os.Mkdir(path+ticketSuffix, 0o700); err != nil { // so the file of the queues cannot be made
		t.Fatal(err)
	}
	k := keeper(t, path, "k")
	if _, err := k.Acquire(t.Context(), "x", leasekeeper.WithPriority(1)); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("without queues: %v", err)
	}
	released(t, held(t, k))
}
