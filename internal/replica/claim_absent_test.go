package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A key may look like that of a claim and be attached to no lease or to another. It keeps a claim of that id from its
// name, also after a restart: its create revision is no token.
func TestForeignKeyKeepsAClaimFromItsName(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.do(1, entry.Grant{Lease: 1, TTL: time.Hour})
	w.do(2, keyspace.PutRequest{Key: []byte("n/7")})
	w.do(3, keyspace.PutRequest{Key: []byte("n/8"), Lease: 1})
	w.do(4, entry.Grant{Lease: 9, TTL: time.Hour})
	w.do(5, keyspace.PutRequest{Key: []byte("n/9"), Lease: 9})
	w.do(6, keyspace.PutRequest{Key: []byte("n/9")}) // which detaches it
	w.do(7, entry.Revoke{Lease: 9})
	claim := func(name string, id lessor.ID) error {
		return w.do(10, ownership.Claim{Lease: id, TTL: time.Hour, Name: name}).Err
	}
	for range 2 {
		for _, id := range []lessor.ID{7, 8, 9} {
			if err := claim("n", id); !errors.Is(err, ownership.ErrLeaseTaken) {
				t.Errorf("claimed with id %d: %v", id, err)
			}
		}
		if err := w.reopened(); err != nil {
			t.Fatal(err)
		}
		w.serve()
	}
	w.do(11, keyspace.DeleteRequest{Key: []byte("n/7")})
	if err := claim("n", 7); err != nil {
		t.Errorf("after the key was deleted: %v", err)
	}
	if err := claim("m", 8); err != nil {
		t.Errorf("another name: %v", err)
	}
}

// rememberedTenures is of how many names package ownership keeps the current tenure in memory.
const rememberedTenures = 1 << 12

// The holders in memory are those of the records, however many there are.
func TestHoldersInMemoryMatchTheirRecords(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	const many = rememberedTenures + 10
	op := func(i int) ownership.Claim {
		return ownership.Claim{Lease: lessor.ID(i + 1), TTL: time.Hour, Name: fmt.Sprint("n", i), Holder: fmt.Append(nil, "holder ", i)}
	}
	for first := 0; first < many; first += 512 {
		var events []Event
		for i := first; i < min(first+512, many); i++ {
			events = append(events, Request{ID: uint64(i + 1), Command: op(i)})
		}
		w.step(events...)
		w.settle()
	}
	if w.replica.names.State(w.replica.view(), "n0").HolderKnown {
		t.Error("the first is remembered yet")
	}
	for _, i := range []int{0, 9, 10, many - 1} {
		c := op(i)
		w.do(100_000, keyspace.PutRequest{Key: ownership.Key(c.Name, c.Lease), Value: []byte("new card"), IgnoreLease: true})
		w.do(100_001, ownership.Release{Name: c.Name, Lease: c.Lease})
		view := w.flushed()
		past, err := record.History(view, c.Name)
		view.Close()
		if err != nil || len(past) != 1 || past[0].Lease != c.Lease || string(past[0].Holder) != "new card" || past[0].Why != ownership.WhyReleased {
			t.Errorf("%s: %+v, %v", c.Name, past, err)
		}
	}
	// The same name again and again, past the end of the ring: each holder keeps its own place.
	last := op(many)
	for i := range rememberedTenures + 1 {
		last.Lease = lessor.ID(many + 10 + i)
		w.step(Request{ID: 1, Command: last}, Request{ID: 2, Command: ownership.Release{Name: last.Name, Lease: last.Lease}})
		w.settle()
	}
	if w.replica.names.State(w.replica.view(), op(many-2).Name).HolderKnown {
		t.Error("the ring has no end")
	}
}
