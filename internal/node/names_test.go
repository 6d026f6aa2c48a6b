package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
)

// A query about names finds records that only the buffer holds, whether the holder's card is in memory or not.
func TestNameQueriesReadWriteBehindBuffer(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := n.Claim(ctx, ownership.Claim{Lease: 1, Name: "a", TTL: time.Hour, Holder: []byte("first")})
	must(err)
	_, err = n.Release(ctx, "a", 1)
	must(err)
	_, err = n.Claim(ctx, ownership.Claim{Lease: 2, Name: "a", TTL: time.Hour, Holder: []byte("second")})
	must(err)
	past, err := n.History(ctx, "a") // which flushes the buffer
	if err != nil || len(past) != 2 || string(past[0].Holder) != "second" || past[1].Why != ownership.WhyReleased {
		t.Errorf("history %+v, %v", past, err)
	}
	_, err = n.Claim(ctx, ownership.Claim{Lease: 3, Name: "b", TTL: time.Hour, Holder: []byte("third")})
	must(err)
	held, _, err := n.HeldNames(ctx, "", "", 10)
	if err != nil || fmt.Sprint(held) != "[a b]" {
		t.Errorf("held are %v, %v", held, err)
	}
	_, _, err = n.Put(ctx, keyspace.PutRequest{Key: ownership.Key("a", 2), Value: []byte("another card"), Lease: 2})
	must(err)
	for _, remembered := range []bool{true, false} {
		if !remembered { // a member that has just started has the cards on its disk only
			must(n.Stop(ctx))
			n = startNode(t, dir)
		}
		states, err := n.Names(ctx, []string{"a", "b", "c"})
		if err != nil || string(states.Names[0].Holder) != "another card" || string(states.Names[1].Holder) != "third" {
			t.Errorf("remembered %t: %+v, %v", remembered, states, err)
		}
	}
}
