package intake

import (
	"fmt"
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// largePut returns a bulk put with a value of a size.
func largePut(size int) keyspace.PutRequest {
	return keyspace.PutRequest{Key: []byte("k"), Value: make([]byte, size)}
}

// One client sends bulk commands until it is refused, be it for their number or for their bytes. Others still find room,
// and each of them less than the one before.
func TestOneClientLeavesTheBulkQueueToOthers(t *testing.T) {
	for _, size := range []int{entry.BulkBytes, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			q, put, last := New(), largePut(size), maxBulkQueue
			for _, client := range []string{"a", "b", "c"} {
				taken := 0
				for ; !q.Full(client, access.Caller{}, put); taken++ {
					q.Add(clock.Instant{}, client, q.Prepare(1, put, access.Caller{}))
				}
				if taken == 0 || taken > last*3/4+1 {
					t.Errorf("%d commands of client %s are taken, after %d of the one before", taken, client, last)
				}
				last = taken
			}
			if q.Full("d", access.Caller{}, put) {
				t.Errorf("%d commands of %d bytes wait: there is no room for another client", q.bulk.length(), q.bulk.bytes())
			}
		})
	}
}

// An entry takes bulk commands of all clients, each client's in order, within the bounds of bytes and of weight. A single
// command may exceed them.
func TestEntriesTakeBulkByTurns(t *testing.T) {
	for _, c := range []struct {
		size int   // of a put
		want []int // commands in each entry
	}{
		{100 << 10, []int{2, 2, 2}},
		{300 << 10, []int{1, 1, 1, 1, 1, 1}},
	} {
		q := New()
		for i, client := range []string{"a", "a", "a", "b", "b", "b"} {
			q.Add(clock.Instant{}, client, q.Prepare(uint64(i+1), largePut(c.size), access.Caller{}))
		}
		var lengths []int
		var order []uint64
		for q.Len() > 0 {
			taken := q.Take(clock.Instant{})
			lengths = append(lengths, len(taken))
			for _, p := range taken {
				order = append(order, p.ID)
			}
		}
		if !slices.Equal(lengths, c.want) {
			t.Errorf("puts of %d bytes: the entries have %v commands, not %v", c.size, lengths, c.want)
		}
		if want := []uint64{1, 4, 2, 5, 3, 6}; !slices.Equal(order, want) {
			t.Errorf("puts of %d bytes: taken in the order %v, not %v", c.size, order, want)
		}
	}
	q := New()
	heavy := keyspace.TxnRequest{Success: slices.Repeat([]keyspace.TxnOp{keyspace.PutRequest{Key: []byte("k")}}, maxBulkEntryWeight/2)}
	for range 3 {
		q.Add(clock.Instant{}, "a", q.Prepare(1, heavy, access.Caller{}))
	}
	if n := len(q.Take(clock.Instant{})); n < 1 || n > 2 {
		t.Errorf("an entry has %d transactions, each of half the weight of an entry", n)
	}
}
