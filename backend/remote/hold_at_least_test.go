package remote_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/server"
)

// countedFinishes is the number of requests Finish of a backend.
type countedFinishes struct{ atomic.Int32 }

// decide counts a request, if it is a Finish, and lets it pass.
func (f *countedFinishes) decide(method string, _ any) fault {
	if strings.HasSuffix(method, "/Finish") {
		f.Add(1)
	}
	return pass
}

// The limit is the server's, so the backend asks before the work. It asks once for times that the server allows.
func TestServerIsAskedAboutTheLongestHold(t *testing.T) {
	s := startOwn(t, server.Config{MaxTTL: time.Hour})
	b, f := faulty(t, s)
	var requests countedFinishes
	f.Set(requests.decide)
	for _, c := range []struct {
		ttl, hold time.Duration
		kind      error
		asked     int32 // until then
	}{
		{usualTTL, usualTTL, nil, 0},
		{usualTTL, time.Hour, nil, 1},
		{usualTTL, 59 * time.Minute, nil, 1},
		{usualTTL, time.Hour + time.Millisecond, backend.ErrInvalid, 2},
		{usualTTL, time.Hour + time.Millisecond, backend.ErrInvalid, 3},
	} {
		is(t, b.ConfirmHold(limited(t), unique("x"), c.ttl, c.hold), c.kind)
		if n := requests.Load(); n != c.asked {
			t.Errorf("%d requests up to a hold of %v, want %d", n, c.hold, c.asked)
		}
	}
	is(t, b.ConfirmHold(limited(t), "//", usualTTL, 2*time.Hour), backend.ErrInvalid)
}

func TestHoldAtLeastBeyondTheServersLimitIsRefusedBeforeTheWork(t *testing.T) {
	s := startOwn(t, server.Config{MaxTTL: time.Hour})
	k, err := leasekeeper.New(open(t, s.Addr))
	ok(t, err)
	defer k.Close()
	name, long := unique("x"), leasekeeper.HoldAtLeast(2*time.Hour)
	work := func(context.Context, *leasekeeper.Lease) error {
		t.Error("the work began")
		return errors.New("it must not run")
	}
	free := func() {
		t.Helper()
		if i, err := k.Get(limited(t), name); err != nil || i.Held {
			t.Errorf("the name is not free: %+v, %v", i, err)
		}
	}
	for call, err := range map[string]error{
		"Run":      k.Run(limited(t), name, work, long),
		"Campaign": k.Campaign(limited(t), name, work, long),
		"Once":     k.Once(limited(t), name, leasekeeper.TickNumber(1), work, long),
	} {
		if is(t, err, backend.ErrInvalid); err != nil && !strings.Contains(err.Error(), "this server allows 1h0m0s (--max-ttl)") {
			t.Errorf("%s: the error does not name the limit: %v", call, err)
		}
		free()
	}
	_, err = k.TryAcquire(limited(t), name, long)
	is(t, err, backend.ErrInvalid)
	free()

	l, err := k.Acquire(limited(t), name)
	ok(t, err)
	_, err = k.Resume(limited(t), name, l.Token(), long)
	is(t, err, backend.ErrInvalid)
	ok(t, l.Check())
	ok(t, l.Release(limited(t)))

	l, err = k.TryAcquire(limited(t), name, leasekeeper.HoldAtLeast(time.Hour))
	ok(t, err)
	ok(t, l.Release(limited(t)))
	if i, err := k.Get(limited(t), name); err != nil || !i.Held {
		t.Errorf("released within its least time, and not held on: %+v, %v", i, err)
	}
}
