package etcd_test

import (
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

// A holder leaves, and its name stays held. The lease is renewed once more only if it could end too early.
func TestLeaseThatIsHeldOnLastsLongEnough(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	name := unique("kept")
	l, g := hold(t, b, name)
	f.Set(nil)
	ok(t, b.Finish(limited(t), l, backend.Finish{Hold: usualTTL / 2}))
	if n := renewals(f); n != 0 {
		t.Errorf("renewed %d times, with enough time left", n)
	}
	marked(t, b, name, backend.Mark{})
	ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1), Hold: usualTTL}))
	if n := renewals(f); n != 1 {
		t.Errorf("renewed %d times, with less than the whole TTL left", n)
	}
	marked(t, b, name, backend.Mark{Tick: tick(1), Token: g.Token})
	if info, err := b.Get(limited(t), name); err != nil || info.Token != g.Token || info.Remaining < usualTTL-5*time.Second {
		t.Errorf("%+v, %v", info, err)
	}
	ok(t, b.Release(limited(t), l))
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

// A person has revoked the lease. It is recorded what its holder has completed, but the lease is renewed no more.
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
	ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(2)}))
	marked(t, b, name, backend.Mark{Tick: tick(2), Token: g.Token})
	s.None(name)
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
