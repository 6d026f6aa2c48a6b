package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// A holding is a lease with one key, as its holder saw it. The server's deadline lies between sent + ttl and
// answered + ttl, so the lateness of its end lies between those two as well.
type holding struct {
	sent     time.Time // just before the request that last prolonged it, or granted it
	answered time.Time // just after its answer
	ttl      time.Duration
	gone     time.Time // when a watcher received the deletion of the key; zero before
}

// atMost is the lateness if the server counted from when the request was sent.
func (h *holding) atMost() time.Duration { return h.gone.Sub(h.sent.Add(h.ttl)) }

// atLeast is the lateness if the server counted from when it answered.
func (h *holding) atLeast() time.Duration { return h.gone.Sub(h.answered.Add(h.ttl)) }

// errEarly is the one thing that a lease server must never do.
var errEarly = errors.New("a lease ended before its time")

// grace is how long after its deadline a lease may live before the scenario is given up, and graceForEach by
// how much longer for each lease that ends with it: etcd ends a thousand in a second.
const (
	grace        = 90 * time.Second
	graceForEach = 1500 * time.Microsecond
)

// await takes events until every holding is gone. None may go before its time, or twice.
func await(ctx context.Context, events <-chan gone, holdings []holding, from int) error {
	limit, patience := time.Now(), grace+time.Duration(len(holdings))*graceForEach
	for i := range holdings {
		if end := holdings[i].answered.Add(holdings[i].ttl + patience); end.After(limit) {
			limit = end
		}
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	for left := len(holdings); left > 0; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d keys are still there: %w", left, len(holdings), ctx.Err())
		case g := <-events:
			if g.err != nil {
				return g.err
			}
			for _, key := range g.keys {
				if key < from || key >= from+len(holdings) || !holdings[key-from].gone.IsZero() {
					return fmt.Errorf("key %d was deleted, unexpectedly or again", key)
				}
				h := &holdings[key-from]
				if h.gone = g.at; h.atMost() < 0 {
					return fmt.Errorf("%w: key %d by %v", errEarly, key, -h.atMost())
				}
				left--
			}
		}
	}
	return nil
}

// attach puts the key of a lease.
func attach(ctx context.Context, conn *grpc.ClientConn, i int, lease int64) error {
	_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: leaseKey(i), Value: []byte("held"), Lease: lease})
	return err
}

// singleExpiries grants leases in waves. In a wave one lease is granted after the other, and the last one well
// before the first one ends. So they end one by one on an idle server.
func singleExpiries(ctx context.Context, s *server, z size) ([]figure, error) {
	// The shortest TTL that etcd grants is two seconds. The pauses vary so that no server's own period
	// fits them, in the same way for every target.
	ttls := []time.Duration{2 * time.Second, 3 * time.Second}
	random := rand.New(rand.NewPCG(1, 2))
	step := func() time.Duration { return 1500 * time.Millisecond / time.Duration(z.perWave) }

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns, err := dial(s.addr, 2)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	events, err := watchDeletes(ctx, conns[1], z.waves*z.perWave)
	if err != nil {
		return nil, err
	}
	all := make([]holding, z.waves*z.perWave)
	for wave := range z.waves {
		from := wave * z.perWave
		holdings := all[from : from+z.perWave]
		for i := range holdings {
			if holdings[i], err = hold(ctx, conns[0], from+i, ttls[wave%len(ttls)]); err != nil {
				return nil, err
			}
			pause(ctx, step()/2+time.Duration(random.Int64N(int64(step()))))
		}
		if err := await(ctx, events, holdings, from); err != nil {
			return nil, err
		}
	}
	return latenessFigures(all), nil
}

// hold is granted a lease and attaches its key.
func hold(ctx context.Context, conn *grpc.ClientConn, i int, ttl time.Duration) (holding, error) {
	h := holding{sent: time.Now()}
	r, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(ttl / time.Second)})
	if err != nil {
		return h, err
	}
	h.answered, h.ttl = time.Now(), time.Duration(r.TTL)*time.Second
	return h, attach(ctx, conn, i, r.ID)
}

func latenessFigures(all []holding) []figure {
	var atMost, atLeast []time.Duration
	for i := range all {
		atMost = append(atMost, all[i].atMost())
		atLeast = append(atLeast, all[i].atLeast())
	}
	ms := func(name string, values []time.Duration, p float64, goal string) figure {
		return figure{name: name, unit: "ms", value: milliseconds(percentile(values, p)), goal: goal}
	}
	return []figure{
		ms("p50, after send + TTL", atMost, 50, "5"),
		ms("p99, after send + TTL", atMost, 99, "20"),
		ms("max, after send + TTL", atMost, 100, ""),
		ms("p50, after answer + TTL", atLeast, 50, ""),
		ms("p99, after answer + TTL", atLeast, 99, ""),
		ms("max, after answer + TTL", atLeast, 100, ""),
	}
}
