package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

// manyLeases claims leases of names that no other process wants.
func manyLeases(t testing.TB, b *remote.Backend, many int) []backend.Lease {
	t.Helper()
	leases := make([]backend.Lease, many)
	var all sync.WaitGroup
	prefix := unique("many")
	for worker := range 32 {
		all.Go(func() {
			for i := worker; i < many; i += 32 {
				claim := newClaim(fmt.Sprint(prefix, "/", i), false)
				claim.TTL = time.Hour
				l, _, err := b.Claim(limited(t), claim)
				if err != nil {
					t.Error(err)
					return
				}
				leases[i] = l
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

// tally counts messages of renewals, their ids, and their streams.
type tally struct{ messages, ids, streams atomic.Int64 }

func (c *tally) on(f *faults) {
	f.Sends(func(_ string, msg any) error {
		if m, ok := msg.(*leasekeeperv1.RenewRequest); ok {
			c.messages.Add(1)
			c.ids.Add(int64(len(m.Leases)))
		}
		return nil
	})
	f.Set(func(method string, _ any) fault {
		if method == leasekeeperv1.Leasekeeper_Renew_FullMethodName {
			c.streams.Add(1)
		}
		return pass
	})
}

// Many leases go in one message, on the open stream, and more than a message may have in several. Leases that have ended are
// reported with the others.
func TestManyLeasesAreRenewedInOneMessage(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	const some = 1000
	leases := manyLeases(t, b, some)
	for i := 0; i < some; i += 7 {
		ok(t, b.Release(limited(t), leases[i]))
	}
	counted := new(tally)
	counted.on(f)
	const rounds = 5
	for range rounds {
		reported := make([]int, some)
		ok(t, b.Renew(limited(t), leases, func(i int, r backend.Renewal) {
			if reported[i]++; (i%7 == 0) != errors.Is(r.Err, backend.ErrLost) || i%7 != 0 && (r.Err != nil || r.TTL != time.Hour) {
				t.Errorf("lease %d: %+v", i, r)
			}
		}))
		if slices.Max(reported) != 1 || slices.Min(reported) != 1 {
			t.Errorf("reported: %v", reported)
		}
	}
	if counted.messages.Load() != rounds || counted.ids.Load() != rounds*some || counted.streams.Load() != 1 {
		t.Errorf("%d messages with %d ids on %d streams", counted.messages.Load(), counted.ids.Load(), counted.streams.Load())
	}
	// The same lease many times.
	alive := slices.Repeat(leases[1:2], 40_000)
	reported := 0
	ok(t, b.Renew(limited(t), alive, func(_ int, r backend.Renewal) {
		if reported++; r.Err != nil {
			t.Error(r.Err)
		}
	}))
	if reported != len(alive) || counted.messages.Load() != rounds+3 {
		t.Errorf("%d were reported, after %d messages", reported, counted.messages.Load()-rounds)
	}
}

// The late answer to a message of an earlier call has no effect on a later call.
func TestRenewDropsLateAnswers(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	l, _ := hold(t, b, unique("late"))
	gone, _ := hold(t, b, unique("gone"))
	ok(t, renew(t, b, l).Err)
	held := make(chan struct{})
	let := sync.OnceFunc(func() { close(held) })
	t.Cleanup(let)
	var blocked atomic.Bool
	f.Answers(func(_ string, msg any) {
		if _, ok := msg.(*leasekeeperv1.RenewResponse); ok && blocked.CompareAndSwap(false, true) {
			<-held
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	is(t, b.Renew(ctx, []backend.Lease{l}, func(_ int, r backend.Renewal) { t.Errorf("reported %+v", r) }), context.Canceled)
	if n := remote.Unanswered(b); n != 0 {
		t.Errorf("%d messages are still waited for", n)
	}
	ok(t, b.Release(limited(t), gone))
	// The first renewal takes another endpoint. The second one takes the first endpoint again, where the late answer comes
	// before its own.
	is(t, renew(t, b, gone).Err, backend.ErrLost)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	is(t, b.Renew(ctx, []backend.Lease{l}, func(int, backend.Renewal) {}), context.Canceled)
	time.AfterFunc(50*time.Millisecond, let)
	is(t, renew(t, b, gone).Err, backend.ErrLost)
	ok(t, renew(t, b, l).Err)
}

// rewritten returns a backend whose renewal answers are changed on the way.
func rewritten(t *testing.T, leases int, change func(*leasekeeperv1.RenewResponse)) (*remote.Backend, []backend.Lease) {
	t.Helper()
	b, f := faulty(t, startStore(t))
	all := manyLeases(t, b, leases)
	f.Answers(func(_ string, msg any) {
		if r, ok := msg.(*leasekeeperv1.RenewResponse); ok {
			change(r)
		}
	})
	return b, all
}

// Leases in a partial answer are reported at once, and the backend asks again for the others.
func TestPartialRenewalAnswersAreReportedAsTheyCome(t *testing.T) {
	var messages atomic.Int32
	b, leases := rewritten(t, 4, func(r *leasekeeperv1.RenewResponse) {
		if messages.Add(1) == 1 {
			r.Pending = []uint32{1, 3}
			r.Refused = []*leasekeeperv1.RefusedRenewal{{Place: 2, State: leasekeeperv1.RefusedRenewal_REVOKED, Why: leasekeeperv1.Why_REVOKED, Note: "so"}}
		}
	})
	var reported []int
	ok(t, b.Renew(limited(t), leases, func(i int, r backend.Renewal) {
		reported = append(reported, i)
		if i == 2 {
			is(t, r.Err, backend.ErrLost)
		} else {
			ok(t, r.Err)
		}
		if first := messages.Load() == 1; first != (i == 0 || i == 2) {
			t.Errorf("lease %d was reported after %d messages", i, messages.Load())
		}
	}))
	if slices.Sort(reported); !slices.Equal(reported, []int{0, 1, 2, 3}) || messages.Load() != 2 {
		t.Errorf("%v, after %d messages", reported, messages.Load())
	}
}

// A malformed answer is believed for no lease.
func TestMalformedRenewalAnswersAreIgnored(t *testing.T) {
	for what, change := range map[string]func(*leasekeeperv1.RenewResponse){
		"a place outside": func(r *leasekeeperv1.RenewResponse) {
			r.Refused = []*leasekeeperv1.RefusedRenewal{{Place: 2, State: leasekeeperv1.RefusedRenewal_GONE}}
		},
		"a late place outside": func(r *leasekeeperv1.RenewResponse) { r.Late, r.Places = true, []uint32{1 << 31, 1} },
		"one place twice":      func(r *leasekeeperv1.RenewResponse) { r.Late, r.Places = true, []uint32{0, 0} },
		"pending outside":      func(r *leasekeeperv1.RenewResponse) { r.Pending = []uint32{7} },
	} {
		t.Run(what, func(t *testing.T) {
			first := true
			b, leases := rewritten(t, 2, func(r *leasekeeperv1.RenewResponse) {
				if first {
					change(r)
				}
				first = false
			})
			reported := make([]int, 2)
			ok(t, b.Renew(limited(t), leases, func(i int, r backend.Renewal) {
				reported[i]++
				ok(t, r.Err)
			}))
			if reported[0] != 1 || reported[1] != 1 {
				t.Errorf("reported: %v", reported)
			}
		})
	}
	b, leases := rewritten(t, 2, func(r *leasekeeperv1.RenewResponse) { r.Number += 100 })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	is(t, b.Renew(ctx, leases, func(int, backend.Renewal) { t.Error("reported") }), context.DeadlineExceeded)
}

// The answer RETRY says nothing about the lease, and makes the next renewal take another endpoint.
func TestRetryAnswerMovesRenewalsToAnotherEndpoint(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	l, _ := hold(t, b, unique("again"))
	counted := new(tally)
	counted.on(f)
	f.Answers(func(_ string, msg any) {
		if r, ok := msg.(*leasekeeperv1.RenewResponse); ok && counted.messages.Load() == 1 {
			r.Refused = []*leasekeeperv1.RefusedRenewal{{State: leasekeeperv1.RefusedRenewal_RETRY}}
		}
	})
	is(t, renew(t, b, l).Err, backend.ErrUnavailable)
	ok(t, renew(t, b, l).Err)
	if n := counted.streams.Load(); n != 2 {
		t.Errorf("%d streams", n)
	}
}

// A connection drops everything, and a new one would not. Renew takes a new one within the same call if there is time.
func TestRenewLeavesADeadConnection(t *testing.T) {
	s := startStore(t)
	for name, others := range map[string][]string{"one endpoint": nil, "two": {s.Addr}} {
		t.Run(name, func(t *testing.T) {
			b, p, l := established(t, remote.Config{Endpoints: others}, s)
			ok(t, renew(t, b, l).Err)
			before := p.Connections()
			p.Stall(true)
			if r := renew(t, b, l); r.Err != nil {
				t.Error("with time for it:", r.Err)
			}
			if len(others) == 0 && p.Connections() == before {
				t.Error("there is no new connection")
			}
		})
	}
}

// The network drops everything for some time. A Renew whose context ends returns that, and the next one takes the other
// endpoint.
func TestRenewEndsWithItsContext(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b, p, l := established(t, remote.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()}, s)
	ok(t, renew(t, b, l).Err)
	p.Stall(false)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	is(t, b.Renew(ctx, []backend.Lease{l}, func(_ int, r backend.Renewal) { t.Errorf("reported %+v", r) }), context.Canceled)
	counted := new(tally)
	counted.on(f)
	ok(t, renew(t, b, l).Err)
	if n := counted.messages.Load(); n != 1 {
		t.Errorf("%d messages: the dead endpoint was tried again", n)
	}
}

// Connections are cut again and again.
func TestRenewalsSurviveCutConnections(t *testing.T) {
	s := startStore(t)
	p := startProxy(t, s.Addr)
	b := open(t, p.Addr())
	name := unique("cut")
	holder := open(t, s.Addr)
	held, _ := hold(t, holder, name)
	l := enqueue(t, b, name)
	turn := make(chan error, 1)
	go func() {
		_, err := b.Await(limited(t), l)
		turn <- err
	}()
	for range 10 {
		p.Cut()
		ok(t, renew(t, b, l).Err)
	}
	ok(t, holder.Release(limited(t), held))
	ok(t, <-turn)
}

// Concurrent calls share a stream, and each receives the answers for its own leases.
func TestConcurrentRenewalsShareOneStream(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	leases := manyLeases(t, b, 64)
	counted := new(tally)
	counted.on(f)
	var all sync.WaitGroup
	for i := range leases {
		all.Go(func() {
			for n := range 20 {
				given := leases[i : i+1+n%(len(leases)-i)]
				reported := 0
				if err := b.Renew(limited(t), given, func(_ int, r backend.Renewal) {
					if reported++; r.Err != nil {
						t.Error(r.Err)
					}
				}); err != nil || reported != len(given) {
					t.Errorf("%d of %d: %v", reported, len(given), err)
				}
			}
		})
	}
	all.Wait()
	if n := counted.streams.Load(); n != 1 {
		t.Errorf("%d streams", n)
	}
}

// A hedge is sent to another endpoint than the call that it hedges.
func TestHedgeTakesAnotherEndpoint(t *testing.T) {
	s := startStore(t)
	var proxies [2]*proxy
	var addrs []string
	for i := range proxies {
		proxies[i] = startProxy(t, s.Addr)
		addrs = append(addrs, proxies[i].Addr())
	}
	var mu sync.Mutex
	sent, opened := make(map[string]int), make(map[string]int) // messages and streams, by endpoint
	count := func(what map[string]int, endpoint string, n int) int {
		mu.Lock()
		defer mu.Unlock()
		what[endpoint] += n
		return what[endpoint]
	}
	see := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if method == leasekeeperv1.Leasekeeper_Renew_FullMethodName {
			count(opened, cc.Target(), 1)
		}
		stream, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, err
		}
		return &seenStream{stream, func(msg any) {
			if _, ok := msg.(*leasekeeperv1.RenewRequest); ok {
				count(sent, cc.Target(), 1)
			}
		}}, nil
	})
	b := openWith(t, remote.Config{Endpoints: addrs, DialOptions: []grpc.DialOption{see}})
	leases := manyLeases(t, b, 10)
	for _, p := range proxies {
		p.Stall(false)
	}
	ctx, cancel := context.WithCancel(limited(t))
	var both sync.WaitGroup
	both.Go(func() {
		is(t, b.Renew(ctx, leases, func(int, backend.Renewal) {}), context.Canceled)
	})
	eventually(t, "the first asks", func() bool { return count(sent, addrs[0], 0) == 1 })
	both.Go(func() {
		is(t, b.Renew(backend.Hedge(ctx), leases[5:], func(int, backend.Renewal) {}), context.Canceled)
	})
	eventually(t, "the other endpoint is asked", func() bool { return count(opened, addrs[1], 0) > 0 })
	if n := count(sent, addrs[0], 0); n != 1 {
		t.Errorf("%d messages went to the endpoint of the first before one went to the other", n)
	}
	cancel()
	both.Wait()
}

// seenStream reports what is sent.
type seenStream struct {
	grpc.ClientStream
	sends func(any)
}

func (s *seenStream) SendMsg(msg any) error {
	s.sends(msg)
	return s.ClientStream.SendMsg(msg)
}
