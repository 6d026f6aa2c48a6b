package remote_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

func keyOf(t testing.TB, l backend.Lease) string {
	t.Helper()
	key, _, err := remote.Key(l)
	ok(t, err)
	return string(key)
}

func idOf(t testing.TB, l backend.Lease) int64 {
	t.Helper()
	id, err := remote.LeaseID(l)
	ok(t, err)
	return id
}

// awaiting waits for a turn in another goroutine.
func awaiting(t testing.TB, b *remote.Backend, l backend.Lease) chan error {
	turn := make(chan error, 1)
	ctx := limited(t)
	go func() {
		_, err := b.Await(ctx, l)
		turn <- err
	}()
	return turn
}

// A waiter has one stream from its claim until its turn, however often Await is called.
func TestRepeatedAwaitUsesOneStream(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	name := unique("listen")
	l, _ := hold(t, b, name)
	f.Set(nil)
	w := enqueue(t, b, name)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := b.Await(ctx, w)
		is(t, err, context.DeadlineExceeded)
		cancel()
	}
	one, two := awaiting(t, b, w), awaiting(t, b, w)
	ok(t, b.Release(limited(t), l))
	ok(t, <-one)
	ok(t, <-two)
	if n := f.Calls()[leasekeeperv1.Leasekeeper_Acquire_FullMethodName]; n != 1 {
		t.Errorf("%d streams", n)
	}
}

// Await leaves a silent stream when another call has found its connection dead.
func TestAwaitLeavesADeadConnection(t *testing.T) {
	s := startStore(t)
	b, p, l := established(t, remote.Config{Endpoints: []string{s.Addr}}, s)
	w := enqueue(t, b, l.Name())
	p.Stall(false)
	ok(t, renew(t, b, w).Err)
	ok(t, open(t, s.Addr).Revoke(limited(t), l.Name(), 0, "x", true))
	began := time.Now()
	_, err := b.Await(limited(t), w)
	if took := time.Since(began); took > 5*time.Second { // gRPC's own pings would take longer
		t.Errorf("took %v", took)
	}
	ok(t, err)
}

// Await does not turn a lease that has ended into another tenure, even if the server has forgotten the lease.
func TestAwaitOfAForgottenLeaseIsLost(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	for _, free := range []bool{false, true} {
		name := unique("forgot")
		l, _ := hold(t, b, name)
		w := enqueue(t, b, name)
		if free {
			ok(t, b.Release(limited(t), l))
		}
		// The answer has another token, as if it belonged to another claim.
		f.Answers(func(_ string, msg any) {
			switch r := msg.(type) {
			case *leasekeeperv1.AcquireResponse:
				r.Token++
			case *leasekeeperv1.HoldResponse:
				for _, a := range r.Answers {
					a.Token++
				}
			}
		})
		_, err := remote.AwaitWithoutTurn(b, limited(t), w)
		is(t, err, backend.ErrLost)
		f.Answers(nil)
		if s.Alive(idOf(t, w)) {
			t.Error("and its key is left in the queue")
		}
	}
}

func TestAwaitEndsWhenItsLeaseEnds(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("own")
	hold(t, b, name)
	l := enqueue(t, b, name)
	turn := awaiting(t, b, l)
	s.Delete(keyOf(t, l))
	is(t, <-turn, backend.ErrLost)
}

// Await does not prolong the lease: however often it is repeated, the lease ends.
func TestAwaitDoesNotRenew(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("short")
	hold(t, b, name)
	claim := newClaim(name, true)
	claim.TTL = 300 * time.Millisecond
	began := time.Now()
	l, _, err := b.Claim(limited(t), claim)
	ok(t, err)
	for err == nil || errors.Is(err, context.DeadlineExceeded) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = b.Await(ctx, l)
		cancel()
	}
	is(t, err, backend.ErrLost)
	if took := time.Since(began); took < claim.TTL {
		t.Errorf("it ended after %v, before its time", took)
	}
}

// Close ends waiting calls, streams of waiters, watches and renewals.
func TestCloseEndsAllCallsAndStreams(t *testing.T) {
	s := startStore(t)
	name := unique("close")
	holder := open(t, s.Addr)
	hold(t, holder, name)
	const loop = "remote.(*muxStream[...]).run("
	others := strings.Count(stacks(), loop)
	b, err := remote.New(remote.Config{Endpoints: []string{s.Addr}})
	ok(t, err)
	var all sync.WaitGroup
	for range 10 {
		l := enqueue(t, b, name)
		enqueue(t, b, name) // no call waits for its turn
		all.Go(func() {
			_, err := b.Await(limited(t), l)
			is(t, err, backend.ErrClosed)
		})
		ok(t, renew(t, b, l).Err)
	}
	all.Go(func() { is(t, b.Watch(limited(t), "", func(backend.Event) {}), backend.ErrClosed) })
	if running := strings.Count(stacks(), loop) - others; running != 2 {
		t.Errorf("%d goroutines run %s, want one for claims and one for renewals", running, loop)
	}
	ok(t, b.Close(limited(t)))
	if left := strings.Count(stacks(), loop) - others; left != 0 {
		t.Errorf("after Close %d goroutines still run %s", left, loop)
	}
	all.Wait()
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	text := make([]byte, 8<<20)
	return string(text[:runtime.Stack(text, true)])
}

// A waiter receives its place in the queue.
func TestWaitersHavePlacesInTheQueue(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("places")
	hold(t, b, name)
	for want := 1; want <= 3; want++ {
		_, g, err := b.Claim(limited(t), newClaim(name, true))
		if err != nil || g.Held || g.Place != want || g.Token != 0 || g.TTL != usualTTL {
			t.Errorf("%d: %+v, %v", want, g, err)
		}
	}
	if info, err := b.Get(limited(t), name); err != nil || info.Waiting != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

// A claim with the ID of another claim, and another name, TTL or holder, is refused. The other claim is unharmed.
func TestClaimWithATakenIDIsRefused(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	claim := newClaim(unique("taken"), true)
	l, _, err := b.Claim(limited(t), claim)
	ok(t, err)
	for _, spoil := range []func(*backend.Claim){
		func(c *backend.Claim) { c.Name += "-other" },
		func(c *backend.Claim) { c.TTL++ },
		func(c *backend.Claim) { c.Holder.ID += "-other" },
	} {
		other := claim
		spoil(&other)
		for _, n := range []int32{0, 1} {
			f.Set(times(n, lose, "Acquire"))
			left, _, err := b.Claim(limited(t), other)
			if is(t, err, backend.ErrInvalid); left != nil {
				t.Error("it comes with a lease")
			}
		}
	}
	ok(t, renew(t, b, l).Err)
}

// lockByRecipe makes a key as etcd's recipe for locks does.
func lockByRecipe(s *store, name string) (key string, id, token int64) {
	s.T.Helper()
	id = s.Grant(60)
	key = fmt.Sprintf("%s/%x", name, id)
	return key, id, s.Put(key, "", id)
}

// Locks of etcd's clients are in the same queue, in a namespace too. Their leases identify them.
func TestLocksOfOtherProgramsAreInTheQueue(t *testing.T) {
	s := startStore(t)
	b := openWith(t, remote.Config{Endpoints: []string{s.Addr}, Namespace: "ns/of"})
	name := unique("recipe")
	key, id, token := lockByRecipe(s, "ns/of/"+name)
	var held *backend.HeldError
	_, _, err := b.Claim(limited(t), newClaim(name, false))
	if !errors.As(err, &held) || int64(held.Token) != token || held.Holder.ID != fmt.Sprintf("etcd lease %x", id) {
		t.Errorf("%+v, %v", held, err)
	}
	_, _, err = b.Resume(limited(t), name, backend.Token(token), backend.Holder{ID: "x"})
	is(t, err, backend.ErrUnsupported)
	l := enqueue(t, b, name)
	if k := keyOf(t, l); !strings.HasPrefix(k, "ns/of/"+name+"/") || len(s.Keys("ns/of/"+name+"/")) != 2 {
		t.Errorf("is queued as %s: %v", k, s.Keys("ns/of/"+name+"/"))
	}
	s.Delete(key)
	g, err := b.Await(limited(t), l)
	ok(t, err)
	if int64(g.Token) <= token {
		t.Errorf("token %d after %d", g.Token, token)
	}
	past, err := b.History(limited(t), name, 10)
	if err != nil || len(past) != 2 || past[1].Why != backend.Deleted || past[1].Holder.ID != fmt.Sprintf("etcd lease %x", id) {
		t.Errorf("%+v, %v", past, err)
	}
}

// Resume puts the new holder on the card, and writes nothing if it is there already.
func TestResumeChangesTheCard(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("resume")
	_, g := hold(t, b, name)
	by := backend.Holder{ID: "new", Card: backend.Card{Host: "there", PID: 7, Started: time.Unix(1700000000, 5), Text: "a <text>"}}
	l, _, err := b.Resume(limited(t), name, g.Token, by)
	ok(t, err)
	info, err := b.Get(limited(t), name)
	ok(t, err)
	if got := info.Holder; got.ID != by.ID || !got.Card.Started.Equal(by.Card.Started) || got.Card.Host != "there" || got.Card.PID != 7 || got.Card.Text != by.Card.Text || info.Token != g.Token {
		t.Errorf("%+v", info)
	}
	version := s.Keys(name + "/")[0].Version
	_, _, err = b.Resume(limited(t), name, g.Token, info.Holder)
	ok(t, err)
	if now := s.Keys(name + "/")[0].Version; now != version {
		t.Errorf("%d writes for nothing", now-version)
	}
	ok(t, b.Announce(limited(t), l, "y"))
	ok(t, renew(t, b, l).Err)
	// A token that does not hold the name is lost.
	_, _, err = b.Resume(limited(t), name, 0, by)
	is(t, err, backend.ErrLost)
}

func TestGateRefusesWritesAfterTheTenure(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("gate")
	l, g := hold(t, b, name)
	compare, err := remote.Compare(l)
	ok(t, err)
	key, created, err := remote.Key(l)
	ok(t, err)
	if created != int64(g.Token) || string(key) != fmt.Sprintf("%s/%x", name, idOf(t, l)) {
		t.Errorf("%s, %d: %+v", key, created, g)
	}
	write := func() bool {
		resp, err := s.KV.Txn(limited(t), &pb.TxnRequest{
			Compare: []*pb.Compare{compare},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(name)}}}},
		})
		ok(t, err)
		return resp.Succeeded
	}
	if !write() {
		t.Error("refused while it is held")
	}
	ok(t, b.Release(limited(t), l))
	if write() {
		t.Error("let through after the release")
	}
	hold(t, b, name)
	if write() {
		t.Error("let through under the next holder")
	}
	_, err = remote.Compare(nil)
	is(t, err, backend.ErrInvalid)
	_, err = remote.LeaseID(foreign{})
	is(t, err, backend.ErrInvalid)
}

type foreign struct{}

func (foreign) Name() string { return "foreign" }
