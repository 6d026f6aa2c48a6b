package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// neighbourLeases are kept with renewals each third of their TTL, and neighbourTTL, in seconds, is that.
	neighbourLeases = 8
	neighbourTTL    = 6
	// neighbourPulse is the time between two renewals, and between two puts, that are timed.
	neighbourPulse = 50 * time.Millisecond
	// neighbourPatience bounds one put.
	neighbourPatience = 10 * time.Second
)

// neighbour is an honest client of a server under attack: it keeps leases, and times renewals and puts. Each time is
// counted from when the request was due, so a server that stops for a moment is charged for all that wait.
type neighbour struct {
	conns connections
	end   context.CancelFunc
	work  sync.WaitGroup

	mu       sync.Mutex
	renewals []time.Duration
	puts     []time.Duration
	failed   int // puts without an answer, or refused
	lost     int // leases
	why      error
}

func newNeighbour(ctx context.Context, addr string) (*neighbour, error) {
	conns, err := dial(addr, 2)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	n := &neighbour{conns: conns, end: end}
	for i := range neighbourLeases + 1 {
		granted, err := pb.NewLeaseClient(conns[0]).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: neighbourTTL})
		if err != nil {
			n.close()
			return nil, fmt.Errorf("granting a lease: %w", err)
		}
		every := neighbourTTL * time.Second / 3
		if i == 0 {
			every = neighbourPulse
		}
		n.work.Go(func() { n.keep(ctx, conns[0], granted.ID, every) })
	}
	n.work.Go(func() { n.put(ctx, conns[1]) })
	return n, nil
}

// close ends the neighbour. It may be called again.
func (n *neighbour) close() {
	n.end()
	n.work.Wait()
	n.conns.close()
}

// keep renews a lease until the context ends, or the lease does. A stream that breaks is opened again.
func (n *neighbour) keep(ctx context.Context, conn *grpc.ClientConn, id int64, every time.Duration) {
	due := time.Now()
	for ctx.Err() == nil {
		stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
		for err == nil {
			pause(ctx, time.Until(due))
			if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				break
			}
			var answer *pb.LeaseKeepAliveResponse
			if answer, err = stream.Recv(); err != nil {
				n.unanswered(ctx, &n.renewals, due, every == neighbourPulse)
				break
			}
			n.renewed(answer, time.Since(due), every == neighbourPulse)
			if answer.TTL <= 0 {
				return
			}
			due = due.Add(every)
		}
		n.note(ctx, err)
		pause(ctx, 10*time.Millisecond)
	}
}

func (n *neighbour) renewed(answer *pb.LeaseKeepAliveResponse, took time.Duration, timed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if answer.TTL <= 0 {
		n.lost++
	}
	if timed {
		n.renewals = append(n.renewals, took)
	}
}

// unanswered counts a request that was still under way at the end of the span with the time that it had waited: without
// it an attack that starves the neighbour for the whole span would pass.
func (n *neighbour) unanswered(ctx context.Context, took *[]time.Duration, due time.Time, timed bool) {
	waited := time.Since(due)
	if ctx.Err() == nil || !timed || waited <= 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	*took = append(*took, waited)
}

// put puts one key again and again.
func (n *neighbour) put(ctx context.Context, conn *grpc.ClientConn) {
	for due := time.Now(); ctx.Err() == nil; due = due.Add(neighbourPulse) {
		pause(ctx, time.Until(due))
		limited, cancel := context.WithTimeout(ctx, neighbourPatience)
		_, err := pb.NewKVClient(conn).Put(limited, &pb.PutRequest{Key: []byte("neighbour"), Value: make([]byte, valueBytes)})
		cancel()
		if ctx.Err() != nil {
			n.unanswered(ctx, &n.puts, due, true)
			return
		}
		n.note(ctx, err)
		n.mu.Lock()
		n.puts = append(n.puts, time.Since(due))
		if err != nil {
			n.failed++
		}
		n.mu.Unlock()
	}
}

// note remembers the first thing that failed, for people.
func (n *neighbour) note(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.why == nil {
		n.why = err
	}
}

// report returns what a closed neighbour measured.
func (n *neighbour) report(p *phase) {
	if len(n.renewals) == 0 || len(n.puts) == 0 {
		p.missed = append(p.missed, errors.Join(fmt.Errorf("%s: the neighbour was never answered", p.name), n.why))
		return
	}
	for _, kind := range []struct {
		name  string
		took  []time.Duration
		limit float64 // of the 99th percentile
	}{{"neighbour's renewals", n.renewals, 500}, {"neighbour's puts", n.puts, 1000}} {
		p.show(kind.name, float64(len(kind.took)), "", -1)
		p.show(kind.name+", p50", milliseconds(percentile(kind.took, 50)), "ms", -1)
		p.show(kind.name+", p99", milliseconds(percentile(kind.took, 99)), "ms", kind.limit)
		p.show(kind.name+", slowest", milliseconds(percentile(kind.took, 100)), "ms", -1)
	}
	p.show("neighbour's puts that failed", float64(n.failed), "", 0)
	p.show("neighbour's leases that were lost", float64(n.lost), "", 0)
	if n.why != nil {
		fmt.Fprintf(p.out, "  the first thing that failed for the neighbour: %v\n", n.why)
	}
}
