package conformance

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// rollingRounds is how often TestRollingRestartIsNotSeenByClients restarts all members.
const rollingRounds = 2

// All members are restarted in turn by SIGTERM while clients use the cluster. No call of clientv3 fails, writes
// included; no lease, lock or event is lost; and a member that cannot serve says so at /readyz.
func TestRollingRestartIsNotSeenByClients(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	r := &rolling{t: t, g: g, s: g.everyone(), over: make(chan struct{}), changes: make(map[*server]*atomic.Int64)}
	for _, m := range g.members {
		r.changes[m] = new(atomic.Int64)
	}
	var working sync.WaitGroup
	for _, work := range []func(){r.write, r.read, r.lock, r.watch, r.renew} {
		working.Go(work)
	}
	for _, m := range g.members {
		working.Go(func() { r.probe(m) })
	}
	for range rollingRounds {
		for _, m := range g.members {
			r.restart(m)
		}
	}
	close(r.over)
	working.Wait()
}

// rolling is one run of the test.
type rolling struct {
	t      *testing.T
	g      *cluster
	s      *server       // whose clients know all members
	over   chan struct{} // closed when the workers are to end
	writes atomic.Int64  // acknowledged ones
	// changes counts, for each member, how often it was told to stop or was ready again.
	changes map[*server]*atomic.Int64
}

func (r *rolling) ended() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// restart restarts a member, which then serves at once. Before it and after it, clients make some progress.
func (r *rolling) restart(m *server) {
	for seen := r.writes.Load(); r.writes.Load() < seen+20 && !r.t.Failed(); {
		time.Sleep(time.Millisecond)
	}
	r.changes[m].Add(1)
	m.stop()
	m.start()
	r.changes[m].Add(1)
	if err := get(r.t.Context(), m); err != nil {
		r.t.Errorf("%s is ready and does not serve: %v", m.name, err)
	}
}

func (r *rolling) write() {
	c := r.s.client()
	for i := 0; !r.ended(); i++ {
		if _, err := c.Put(r.t.Context(), fmt.Sprintf("rolling/%d", i), ""); err != nil {
			r.t.Errorf("write %d: %v", i, err)
			return
		}
		r.writes.Add(1)
	}
}

func (r *rolling) read() {
	c := r.s.client()
	for !r.ended() {
		known := r.writes.Load()
		resp, err := c.Get(r.t.Context(), "rolling/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || resp.Count < known {
			r.t.Errorf("%d keys after %d acknowledged writes, %v", resp.Count, known, err)
			return
		}
	}
}

// lock holds a lock again and again. The session's lease outlives all restarts.
func (r *rolling) lock() {
	session, err := concurrency.NewSession(r.s.client(), concurrency.WithTTL(30))
	if err != nil {
		r.t.Errorf("session: %v", err)
		return
	}
	defer session.Close()
	for !r.ended() {
		m := concurrency.NewMutex(session, "lock")
		if err := m.Lock(r.t.Context()); err != nil {
			r.t.Errorf("lock: %v", err)
			return
		}
		if err := m.Unlock(r.t.Context()); err != nil {
			r.t.Errorf("unlock: %v", err)
			return
		}
	}
	select {
	case <-session.Done():
		r.t.Error("the session has ended")
	default:
	}
}

// watch sees each write once and in order.
func (r *rolling) watch() {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	next := 0
	events := r.s.client().Watch(ctx, "rolling/", clientv3.WithPrefix(), clientv3.WithRev(1))
	for !r.ended() || int64(next) < r.writes.Load() {
		select {
		case resp := <-events:
			if err := resp.Err(); err != nil {
				r.t.Errorf("the watch has ended: %v", err)
				return
			}
			for _, e := range resp.Events {
				if want := fmt.Sprintf("rolling/%d", next); string(e.Kv.Key) != want {
					r.t.Errorf("event of %s, want %s", e.Kv.Key, want)
					return
				}
				next++
			}
		case <-time.After(waitLimit):
			r.t.Errorf("%d events of %d", next, r.writes.Load())
			return
		case <-r.over:
			time.Sleep(time.Millisecond)
		}
	}
}

// renew keeps a lease that is much shorter than the test.
func (r *rolling) renew() {
	c := r.s.client()
	lease, err := c.Grant(r.t.Context(), 5)
	if err != nil {
		r.t.Errorf("grant: %v", err)
		return
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	renewals, err := c.KeepAlive(ctx, lease.ID)
	if err != nil {
		r.t.Errorf("keep alive: %v", err)
		return
	}
	for {
		select {
		case resp := <-renewals:
			if resp == nil {
				r.t.Error("the lease was lost")
				return
			}
		case <-r.over:
			return
		}
	}
}

// probe checks that a member that does not serve says so. It is ready during an ordinary election, which a read waits
// for, so only a member that is ready and fails two reads is wrong.
func (r *rolling) probe(m *server) {
	for !r.ended() {
		before := r.changes[m].Load()
		first := get(r.t.Context(), m)
		if first == nil {
			continue
		}
		if code, _, err := httpGet("http://" + m.httpAddr + "/readyz"); err != nil || code != http.StatusOK {
			continue
		}
		if second := get(r.t.Context(), m); second != nil && r.changes[m].Load() == before {
			r.t.Errorf("%s says that it is ready between these errors: %v; %v", m.name, first, second)
		}
	}
}

// get makes a linearizable read through one member, over a connection of its own.
func get(ctx context.Context, m *server) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(m.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("k")})
	return err
}
