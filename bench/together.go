package main

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// firstLease is the id of the first of many leases with consecutive ids.
	firstLease = 1 << 40
	// prepareInFlight is used for preparations, whose speed is not measured.
	prepareInFlight = 128
	// renewStreams share a burst of renewals.
	renewStreams = 4
)

// commonDeadline waits for the last key of many leases to go that have almost the same deadline.
func commonDeadline(leases int, ttl time.Duration, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, _ size) ([]figure, error) {
		return withCommonDeadline(ctx, s, leases, ttl,
			func(ctx context.Context, events <-chan gone, holdings []holding) ([]figure, error) {
				if err := await(ctx, events, holdings, 0); err != nil {
					return nil, err
				}
				return togetherFigures(holdings, goal), nil
			})
	}
}

// withCommonDeadline grants many leases, each with a key, and renews all of them in one burst, so that their
// deadlines lie as close together as the burst is short. Then it leaves them, before the first ends, to what
// is to be measured.
func withCommonDeadline(ctx context.Context, s *server, leases int, ttl time.Duration,
	measure func(ctx context.Context, events <-chan gone, holdings []holding) ([]figure, error)) ([]figure, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns, err := dial(s.addr, renewStreams)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	watching, err := dial(s.addr, 1)
	if err != nil {
		return nil, err
	}
	defer watching.close()
	events, err := watchDeletes(ctx, watching[0], leases)
	if err != nil {
		return nil, err
	}

	start := time.Now()
	err = each(ctx, conns, prepareInFlight, leases, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
		_, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{
			ID: firstLease + int64(i), TTL: int64(ttl / time.Second)})
		if err != nil {
			return err
		}
		return attach(ctx, conn, i, firstLease+int64(i))
	})
	if err != nil {
		return nil, err
	}
	holdings := make([]holding, leases)
	if err := renewAll(ctx, conns, holdings); err != nil {
		return nil, err
	}
	if took := time.Since(start); took > ttl {
		return nil, fmt.Errorf("granting and renewing took %v, longer than the TTL of %v", took, ttl)
	}
	return measure(ctx, events, holdings)
}

// renewAll renews every lease once, as fast as the streams take them.
func renewAll(ctx context.Context, conns connections, holdings []holding) error {
	g := newGroup(ctx)
	for n, conn := range conns {
		from, to := len(holdings)*n/len(conns), len(holdings)*(n+1)/len(conns)
		stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(g.ctx)
		if err != nil {
			g.cancel(err)
			break
		}
		g.run(func(context.Context) error {
			for i := from; i < to; i++ {
				holdings[i].sent = time.Now()
				if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: firstLease + int64(i)}); err != nil {
					return err
				}
			}
			return nil
		})
		g.run(func(context.Context) error {
			for range to - from {
				r, err := stream.Recv()
				if err != nil {
					return err
				}
				i := r.ID - firstLease
				if i < int64(from) || i >= int64(to) || r.TTL <= 0 {
					return fmt.Errorf("renewing was answered with TTL %d for lease %x", r.TTL, r.ID)
				}
				holdings[i].answered, holdings[i].ttl = time.Now(), time.Duration(r.TTL)*time.Second
			}
			return nil
		})
	}
	return g.wait()
}

// ends puts together the earliest times of all holdings, and the latest.
func ends(holdings []holding) (first, last holding) {
	first, last = holdings[0], holdings[0]
	for _, h := range holdings {
		if h.sent.Before(first.sent) {
			first.sent = h.sent
		}
		if h.gone.Before(first.gone) {
			first.gone = h.gone
		}
		if h.answered.After(last.answered) {
			last.answered = h.answered
		}
		if h.gone.After(last.gone) {
			last.gone = h.gone
		}
	}
	return first, last
}

func togetherFigures(holdings []holding, goal string) []figure {
	first, last := ends(holdings)
	var late []time.Duration
	for _, h := range holdings {
		late = append(late, h.atMost())
	}
	ms := func(name string, d time.Duration, goal string) figure {
		return figure{name: name, unit: "ms", value: milliseconds(d), goal: goal}
	}
	return []figure{
		ms("last key gone, after last answer + TTL", last.atLeast(), goal),
		ms("each, after its send + TTL, p50", percentile(late, 50), ""),
		ms("each, after its send + TTL, max", percentile(late, 100), ""),
		ms("first key gone to last key gone", last.gone.Sub(first.gone), ""),
		ms("how far the deadlines lie apart, at most", last.answered.Sub(first.sent), ""),
	}
}
