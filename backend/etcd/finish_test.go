package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

func TestNameIsHeldOnForAtMostTheTTL(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	ok(t, b.CheckHold(usualTTL, 0))
	ok(t, b.CheckHold(usualTTL, usualTTL))
	is(t, b.CheckHold(usualTTL, usualTTL+1), backend.ErrUnsupported)
	name := unique("long")
	l, _ := hold(t, b, name)
	is(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1), Hold: usualTTL + 1}), backend.ErrUnsupported)
	marked(t, b, name, backend.Mark{})
	ok(t, renew(t, b, l).Err)
}

// renewals returns how often the backend renewed a lease since the faults were set.
func renewals(f *faults) (n int) {
	for method, calls := range f.Calls() {
		if strings.HasSuffix(method, "LeaseKeepAlive") {
			n += calls
		}
	}
	return n
}

// A holder leaves, and its name stays held. The lease is renewed once more only if it could end too early, and never again.
func TestLeaseThatIsHeldOnLastsLongEnough(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	// The third time is less than what is left of the lease, but not by the drift bound.
	for d, want := range map[time.Duration]int{usualTTL / 2: 0, usualTTL: 1, usualTTL - 1100*time.Millisecond: 1} {
		name := unique("kept")
		l, g := hold(t, b, name)
		f.Set(nil)
		finish := backend.Finish{Tick: tick(1), Hold: d}
		for range 2 { // the second one changes nothing
			ok(t, b.Finish(limited(t), l, finish))
			if n := renewals(f); n != want {
				t.Errorf("to be held for %v: renewed %d times, want %d", d, n, want)
			}
		}
		err := renew(t, b, l).Err
		if is(t, err, backend.ErrLost); !strings.Contains(fmt.Sprint(err), "its holder has released it") {
			t.Errorf("the renewal fails with %v", err)
		}
		is(t, b.RaiseMark(limited(t), l, tick(2)), backend.ErrLost)
		is(t, b.Announce(limited(t), l, "x"), backend.ErrLost)
		ok(t, b.Release(limited(t), l)) // it was released
		ok(t, b.Finish(limited(t), l, backend.Finish{}))
		ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1)}))
		marked(t, b, name, backend.Mark{Tick: tick(1), Token: g.Token})
		if info, err := b.Get(limited(t), name); err != nil || info.Token != g.Token || info.Remaining < d-5*time.Second {
			t.Errorf("%+v, %v", info, err)
		}
		ok(t, b.Revoke(limited(t), name, g.Token, "", true))
		s.None(name)
	}
}

// The outcome of a finish is unknown, and the holder releases the lease. The name stays held only if the finish took effect.
func TestReleaseAfterAFinishWithAnUnknownOutcome(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	for what, held := range map[fault]int{lose: 2, unsent: 0} { // the key, and what says that it is held on
		name := unique("unknown")
		l, _ := hold(t, b, name)
		f.Set(times(always, what, "Write"))
		if err := b.Finish(limited(t), l, backend.Finish{Hold: usualTTL}); err == nil {
			t.Error("no error")
		}
		if f.Set(nil); what == lose {
			ok(t, b.Finish(limited(t), l, backend.Finish{Hold: usualTTL}))
		}
		f.Set(times(always, unsent, "Range"))
		is(t, b.Release(limited(t), l), backend.ErrUnavailable)
		f.Set(nil)
		ok(t, b.Release(limited(t), l))
		if keys := s.Keys(name + "/"); len(keys) != held {
			t.Errorf("%d keys, want %d: %v", len(keys), held, keys)
		}
		f.Set(nil)
		other, _ := hold(t, b, unique("other"))
		ok(t, b.Release(limited(t), other))
		for method := range f.Calls() {
			if strings.HasSuffix(method, "/Range") {
				t.Error("an ordinary release reads")
			}
		}
	}
}

// The lease runs out by itself, and then a waiter has its turn. The repeated call is recognized though the lease is gone.
func TestLeaseThatIsHeldOnRunsOut(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	claim := newClaim(unique("short"), false)
	claim.TTL = 3 * time.Second // etcd grants no less than two seconds
	l, g, err := b.Claim(limited(t), claim)
	ok(t, err)
	begun := time.Now()
	finish := backend.Finish{Tick: tick(1), Hold: 2 * time.Second}
	ok(t, b.Finish(limited(t), l, finish))
	waits := enqueue(t, b, claim.Name)
	_, err = b.Await(limited(t), waits)
	ok(t, err)
	if held := time.Since(begun); held < finish.Hold {
		t.Errorf("the name was held for %v", held)
	}
	ok(t, b.Finish(limited(t), l, finish))
	is(t, b.Finish(limited(t), l, backend.Finish{Hold: finish.Hold}), backend.ErrLost)
	marked(t, b, claim.Name, backend.Mark{Tick: tick(1), Token: g.Token})
	ok(t, b.Release(limited(t), waits))
}

// A person has revoked the lease. What its holder has completed is recorded, and the name is free.
func TestRevokedLeaseIsNotHeldOn(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	name := unique("revoked")
	l, g := hold(t, b, name)
	ok(t, b.Revoke(limited(t), name, g.Token, "enough", false))
	f.Set(nil)
	ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1), Hold: usualTTL}))
	if n := renewals(f); n != 0 {
		t.Errorf("renewed %d times", n)
	}
	marked(t, b, name, backend.Mark{Tick: tick(1), Token: g.Token})
	s.None(name)
}

// A person revokes the lease at the moment at which its holder leaves.
func TestRevocationDuringAFinishFreesTheName(t *testing.T) {
	s := startStore(t)
	name := unique("reason")
	person := open(t, s.Addr)
	held := false
	b := intercepted(t, s, "Write", func(_ context.Context, invoke func() error) error {
		if held {
			ok(t, person.Revoke(limited(t), name, 0, "enough", false))
			held = false
		}
		return invoke()
	})
	l, g := hold(t, b, name)
	held = true
	ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1), Hold: usualTTL / 2}))
	marked(t, b, name, backend.Mark{Tick: tick(1), Token: g.Token})
	if n := len(s.Keys(name + "/")); n > 1 { // the revocation goes with its lease
		t.Errorf("%d keys are left", n)
	}
	hold(t, person, name)
}

func TestFinishThatLeavesNothingBehindIsARelease(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("plain")
	l, _ := hold(t, b, name)
	ok(t, b.Finish(limited(t), l, backend.Finish{}))
	s.None(name)
	ok(t, b.Finish(limited(t), l, backend.Finish{}))
	marked(t, b, name, backend.Mark{})
}

// A member says that a lease is gone whose key is there. Nothing is recorded, and the holder can try again.
func TestFinishDoesNotBelieveAMemberAlone(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	name := unique("disbelieved")
	l, _ := hold(t, b, name)
	gone := func(_ string, msg any) {
		if r, ok := msg.(*pb.LeaseKeepAliveResponse); ok {
			r.TTL = 0
		}
	}
	f.Answers(gone)
	is(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1), Hold: usualTTL}), backend.ErrUnavailable)
	f.Answers(func(method string, msg any) {
		s.Revoke(idOf(t, l))
		gone(method, msg)
	})
	is(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1), Hold: usualTTL}), backend.ErrLost)
	marked(t, b, name, backend.Mark{})
}
