package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// killLimit bounds the work for one kill.
	killLimit = 2 * time.Minute
	// writeEvery is how often each survivor is asked to write after the leader was killed, and writeLimit how long one
	// of these tries may take; failoverLimit bounds all of them.
	writeEvery    = 5 * time.Millisecond
	writeLimit    = 500 * time.Millisecond
	failoverLimit = 30 * time.Second
	// prepare is the time to grant the leases of one kill, before the first is renewed for the last time. slack is how late
	// everything may be. again is how many kills may be repeated in all, besides one in ten.
	prepare = 500 * time.Millisecond
	slack   = 150 * time.Millisecond
	again   = 3

	writtenPrefix = "written/"
)

// dying says when holders stop, and the leader with them.
type dying struct {
	leases int           // that are held at each kill
	ttl    time.Duration // of each
	// If the leader lived, the leases would end evenly spread from first to last after the kill. By the kill, each holder
	// has been silent for the TTL without last. So the leader has recorded the remaining time of its lease.
	first, last time.Duration
}

// A failover has the times of one kill of the leader, and the leases that were about to end.
type failover struct {
	killed, written time.Time
	holdings        []holding
}

// kills kills the leader again and again, each time while leases are about to end whose holders have stopped.
func kills(ctx context.Context, c *cluster, z size, say progress) ([]figure, error) {
	var failovers []failover
	moved := 0
	for len(failovers) < z.kills {
		say.line("%s: kill %d of %d", c.members[0].name, len(failovers)+1, z.kills)
		f, err := c.failOver(ctx, z.dying, len(failovers)+moved, len(failovers))
		if errors.Is(err, errUnsettled) && moved < again+z.kills/10 {
			moved++
			continue
		}
		if err != nil {
			figures, _ := failoverFigures(failovers)
			return figures, fmt.Errorf("kill %d of %d: %w", len(failovers)+1, z.kills, err)
		}
		failovers = append(failovers, f)
	}
	return failoverFigures(failovers)
}

func failoverFigures(failovers []failover) ([]figure, error) {
	var leaderless, overstay, beyond []time.Duration
	for _, f := range failovers {
		leaderless = append(leaderless, f.written.Sub(f.killed))
		for _, h := range f.holdings {
			overstay = append(overstay, h.atMost())
			beyond = append(beyond, h.atMost()-f.written.Sub(f.killed))
		}
	}
	shown := []float64{50, 95, 100}
	first, err := distribution("kill to first acknowledged write, ", leaderless, shown, "900", "1 500")
	late, err2 := distribution("a silent holder's lease, after send + TTL, ", overstay, shown)
	more, err3 := distribution("the same less that kill's first write, ", beyond, []float64{100}, "0")
	return slices.Concat(first, late, more), errors.Join(err, err2, err3)
}

// errUnsettled says that something else than the kill would have been measured.
var errUnsettled = errors.New("another member led before the leader was killed, or the machine was too slow to kill it in time")

// failOver kills the leader, waits for the consequences, and starts the member again. attempt numbers the leases of all
// attempts, and nth is the number of earlier kills.
func (c *cluster) failOver(ctx context.Context, d dying, attempt, nth int) (f failover, err error) {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	leader, err := c.awaitLeader(ctx)
	if err != nil {
		return f, err
	}
	survivors := slices.Delete(slices.Clone(c.conns), leader, leader+1)
	from := attempt * d.leases
	var watchers []<-chan gone
	for _, conn := range survivors {
		events, err := watchDeletes(ctx, conn, d.leases)
		if err != nil {
			return f, err
		}
		watchers = append(watchers, events)
	}
	f.killed = time.Now().Add(d.ttl + prepare + rand.N(100*time.Millisecond)) // so that no server's own period fits
	if f.holdings, err = c.silence(ctx, d, c.conns[leader], from, f.killed); err != nil {
		return f, err
	}
	pause(ctx, time.Until(f.killed))
	answers, err := c.ask(ctx)
	if now, agreed := leaderOf(answers); err != nil || !agreed || now != leader || time.Since(f.killed) > slack {
		if err := awaitEverywhere(ctx, watchers, f.holdings, from); err != nil {
			return f, err
		}
		return f, errUnsettled
	}
	f.killed = time.Now()
	c.members[leader].kill()
	if f.written, err = firstWrite(ctx, survivors, nth); err != nil {
		return f, err
	}
	if err := awaitEverywhere(ctx, watchers, f.holdings, from); err != nil {
		return f, err
	}
	return f, c.revive(ctx, leader, nth+1)
}

// silence grants leases, with a key each, and renews each for the last time when it will end, by its TTL, at its time
// around the kill.
func (c *cluster) silence(ctx context.Context, d dying, conn *grpc.ClientConn, from int, killed time.Time) ([]holding, error) {
	holdings := make([]holding, d.leases)
	ids := make([]int64, d.leases)
	for i := range holdings {
		r, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(d.ttl / time.Second)})
		if err != nil {
			return nil, err
		}
		if ids[i] = r.ID; time.Duration(r.TTL)*time.Second != d.ttl {
			return nil, fmt.Errorf("a TTL of %v was asked for and %d s granted", d.ttl, r.TTL)
		}
		if err := attach(ctx, conn, from+i, r.ID); err != nil {
			return nil, err
		}
	}
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	for i := range holdings {
		end := killed.Add(d.first + (d.last-d.first)*time.Duration(i)/time.Duration(max(d.leases-1, 1)))
		pause(ctx, time.Until(end.Add(-d.ttl)))
		if holdings[i], err = renewLast(stream, ids[i]); err != nil {
			return nil, err
		}
	}
	return holdings, stream.CloseSend()
}

func renewLast(stream pb.Lease_LeaseKeepAliveClient, id int64) (h holding, err error) {
	h.sent = time.Now()
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return h, err
	}
	r, err := stream.Recv()
	if err != nil {
		return h, err
	}
	h.answered, h.ttl = time.Now(), time.Duration(r.TTL)*time.Second
	if r.TTL <= 0 {
		return h, fmt.Errorf("lease %x is gone before its last renewal", id)
	}
	return h, nil
}

// awaitEverywhere returns when all watchers have received the deletion of all keys. A holding is gone when the first
// watcher receives that.
func awaitEverywhere(ctx context.Context, watchers []<-chan gone, holdings []holding, from int) error {
	for _, events := range watchers {
		seen := slices.Clone(holdings)
		for i := range seen {
			seen[i].gone = time.Time{}
		}
		if err := await(ctx, events, seen, from); err != nil {
			return err
		}
		for i, h := range seen {
			if holdings[i].gone.IsZero() || h.gone.Before(holdings[i].gone) {
				holdings[i].gone = h.gone
			}
		}
	}
	return nil
}

// firstWrite sends writes to every survivor, again and again, without waiting for answers. It returns when the first write
// is acknowledged.
func firstWrite(ctx context.Context, survivors connections, nth int) (time.Time, error) {
	var tries sync.WaitGroup
	defer tries.Wait()
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	request := &pb.PutRequest{Key: []byte(writtenPrefix + strconv.Itoa(nth)), Value: []byte("written")}
	answered := make(chan time.Time, 1)
	ticker := time.NewTicker(writeEvery)
	defer ticker.Stop()
	for {
		for _, conn := range survivors {
			tries.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, writeLimit)
				defer cancel()
				if _, err := pb.NewKVClient(conn).Put(ctx, request); err != nil {
					return // the next one may be luckier
				}
				select {
				case answered <- time.Now():
				default: // another was
				}
			})
		}
		select {
		case at := <-answered:
			return at, nil
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("nothing was written for %v: %w", failoverLimit, ctx.Err())
		case <-ticker.C:
		}
	}
}

// revive starts a killed member again. Then all must agree again, and each must know every write that was ever
// acknowledged.
func (c *cluster) revive(ctx context.Context, killed, written int) error {
	if err := c.members[killed].launch(); err != nil {
		return err
	}
	if err := c.awaitAll(ctx); err != nil {
		return err
	}
	for i, conn := range c.conns {
		r, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{
			Key: []byte(writtenPrefix), RangeEnd: []byte("written0"), CountOnly: true})
		if err != nil {
			return err
		}
		if r.Count != int64(written) {
			return fmt.Errorf("%d writes were acknowledged, and %s knows %d", written, memberNames[i], r.Count)
		}
	}
	return nil
}
