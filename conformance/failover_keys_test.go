package conformance

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// allWorkers are the workers besides those of the registers, each until the drill is over. Several of them compete for one
// name.
func (d *drill) allWorkers() []func() {
	locked, elected := newGuard(d, "lock"), newGuard(d, "election")
	return []func(){
		d.putting(0), d.putting(1), d.putting(2), d.counting(), d.counting(), d.deleting, d.compacting,
		d.leasing, d.keepingAlive(0), d.keepingAlive(1), d.keepingAlive(2), d.lettingLapse, d.moving, d.moving,
		d.lockService(locked, 0), d.lockService(locked, 1), d.mutexes(locked, 2),
		d.electionService(elected, 0), d.elections(elected, 1), d.observing,
		d.etcdctl, d.sharing("run"), d.sharing("etcdctl"), d.sharing("mutex"), d.names,
	}
}

// puts go to this prefix, which is watched.
const drillKeys = "keys/"

// putting writes one key, higher numbers every time, and reads it. A read never shows less than what was acknowledged
// before it began.
func (d *drill) putting(n int) func() {
	return func() {
		c, key := d.client(n), fmt.Sprintf("%sput-%d", drillKeys, n)
		number := func(resp *clientv3.GetResponse) (number int) {
			if len(resp.Kvs) > 0 {
				number, _ = strconv.Atoi(string(resp.Kvs[0].Value))
			}
			return number
		}
		acked := 0
		for i := 1; !d.ended(); i++ {
			err := d.call("put", func(ctx context.Context) error {
				resp, err := c.Put(ctx, key, strconv.Itoa(i))
				if err == nil {
					d.history.acked(key, resp.Header.Revision)
				}
				return err
			})
			if err == nil {
				acked = i
			}
			var seen int
			if err, _ := d.must("get", func(ctx context.Context) error {
				resp, err := c.Get(ctx, key)
				if err == nil {
					seen = number(resp)
				}
				return err
			}); err == nil && (seen < acked || seen > i) {
				d.t.Errorf("%s is %d, after %d was acknowledged and %d asked for", key, seen, acked, i)
			}
			d.call("get, serializable", func(ctx context.Context) error {
				resp, err := c.Get(ctx, key, clientv3.WithSerializable())
				if err == nil && number(resp) > i {
					d.t.Errorf("%s is %d before that was asked for", key, number(resp))
				}
				return err
			})
			time.Sleep(5 * time.Millisecond) // so that a slow machine has time for the others
		}
	}
}

// counting adds one to a number, by transactions that several clients make. Each acknowledged one counts once, and
// each whose outcome is unknown at most once.
func (d *drill) counting() func() {
	return func() {
		c, key := d.client(1), drillKeys+"counter"
		for !d.ended() {
			var now *clientv3.GetResponse
			if err, _ := d.must("get", func(ctx context.Context) (err error) {
				now, err = c.Get(ctx, key)
				return err
			}); err != nil {
				return
			}
			value, revision := 0, int64(0)
			if len(now.Kvs) > 0 {
				value, _ = strconv.Atoi(string(now.Kvs[0].Value))
				revision = now.Kvs[0].ModRevision
			}
			err := d.call("txn", func(ctx context.Context) error {
				resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
					Then(clientv3.OpPut(key, strconv.Itoa(value+1))).Commit()
				if err == nil && resp.Succeeded {
					d.history.acked(key, resp.Header.Revision)
					d.history.added.Add(1)
				}
				return err
			})
			if err != nil {
				d.history.perhapsAdded.Add(1)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// deleting deletes its own puts. Afterwards they are gone.
func (d *drill) deleting() {
	c := d.client(2)
	for i := 0; !d.ended(); i++ {
		key := fmt.Sprintf("%sdeleted-%d", drillKeys, i%10)
		d.must("put", func(ctx context.Context) error { _, err := c.Put(ctx, key, ""); return err })
		d.must("delete", func(ctx context.Context) error { _, err := c.Delete(ctx, key); return err })
		d.must("get", func(ctx context.Context) error {
			resp, err := c.Get(ctx, key, clientv3.WithCountOnly())
			if err == nil && resp.Count != 0 {
				d.t.Errorf("%s is there after it was deleted", key)
			}
			return err
		})
		time.Sleep(10 * time.Millisecond)
	}
}

// compactAfter is the age of compacted revisions. Who waits for a lock watches a key at which nothing happens, and clientv3
// resumes that at another member where it once began.
const compactAfter = 12 * time.Second

// compacting compacts what has been a while ago.
func (d *drill) compacting() {
	c := d.client(0)
	var past []int64 // a revision for each second
	for ; !d.ended(); time.Sleep(time.Second) {
		past = append(past, d.history.watchers[0].seen.Load())
		if n := len(past) - int(compactAfter/time.Second); n > 0 && past[n] > 1 {
			d.must("compact", func(ctx context.Context) error { _, err := c.Compact(ctx, past[n]); return err },
				rpctypes.ErrCompacted)
		}
	}
}

// leasing does all that is done with a lease, one after the other.
func (d *drill) leasing() {
	c := d.client(1)
	for i := int64(1); !d.ended(); i++ {
		key := fmt.Sprintf("leased-%d", i)
		var lease clientv3.LeaseID
		if err, _ := d.must("lease grant", func(ctx context.Context) error {
			resp, err := c.Grant(ctx, 60)
			if err == nil {
				lease = resp.ID
			}
			return err
		}); err != nil {
			return
		}
		d.must("put with lease", func(ctx context.Context) error { _, err := c.Put(ctx, key, "", clientv3.WithLease(lease)); return err })
		d.must("lease keep-alive", func(ctx context.Context) error { _, err := c.KeepAliveOnce(ctx, lease); return err })
		d.must("lease timetolive", func(ctx context.Context) error {
			resp, err := c.TimeToLive(ctx, lease, clientv3.WithAttachedKeys())
			if err == nil && (resp.TTL < 30 || resp.TTL > 60 || len(resp.Keys) != 1) {
				d.t.Errorf("lease %x: %d s, keys %q", lease, resp.TTL, resp.Keys)
			}
			return err
		})
		d.must("lease list", func(ctx context.Context) error { _, err := c.Leases(ctx); return err })
		err, repeated := d.must("lease revoke", func(ctx context.Context) error { _, err := c.Revoke(ctx, lease); return err },
			rpctypes.ErrLeaseNotFound)
		if err != nil && !repeated {
			d.t.Errorf("lease %x was lost: %v", lease, err)
		}
		d.must("get", func(ctx context.Context) error {
			resp, err := c.Get(ctx, key)
			if err == nil && len(resp.Kvs) != 0 {
				d.t.Errorf("%s is there after its lease was revoked", key)
			}
			return err
		})
		time.Sleep(10 * time.Millisecond)
	}
}

// keepingAlive keeps a short lease with clientv3's renewals: it exists to the end.
func (d *drill) keepingAlive(n int) func() {
	return func() {
		const ttl = 8
		c, key := d.client(n), fmt.Sprintf("kept-%d", n)
		var lease clientv3.LeaseID
		err, _ := d.must("lease grant", func(ctx context.Context) error {
			resp, err := c.Grant(ctx, ttl)
			if err == nil {
				lease = resp.ID
			}
			return err
		})
		if err != nil {
			return
		}
		d.must("put with lease", func(ctx context.Context) error {
			_, err := c.Put(ctx, key, "", clientv3.WithLease(lease))
			return err
		})
		ctx, cancel := context.WithCancel(d.t.Context())
		defer cancel()
		renewals, err := c.KeepAlive(ctx, lease)
		if err != nil {
			d.t.Errorf("keep alive: %v", err)
			return
		}
		last := time.Now()
		for {
			select {
			case resp, ok := <-renewals:
				if !ok {
					d.t.Errorf("the renewals have ended %v after the last", time.Since(last))
					return
				}
				d.log.called("renewal of clientv3", time.Since(last), 0, nil)
				last = time.Now()
				if resp.TTL != ttl {
					d.t.Errorf("renewed for %d s", resp.TTL)
				}
			case <-d.over:
				d.must("get", func(ctx context.Context) error {
					resp, err := c.Get(ctx, key)
					if err == nil && len(resp.Kvs) != 1 {
						d.t.Errorf("%s, the key of a lease that was kept alive, is gone", key)
					}
					return err
				})
				return
			}
		}
	}
}

// lettingLapse leaves leases alone. They never end early, and in the end they do.
func (d *drill) lettingLapse() {
	c := d.client(0)
	for i := 0; !d.ended(); i++ {
		key := fmt.Sprintf("lapsing-%d", i)
		var l life
		var lease clientv3.LeaseID
		if err, _ := d.must("lease grant", func(ctx context.Context) error {
			sent := time.Now()
			resp, err := c.Grant(ctx, 2)
			if err == nil {
				l.renewed(sent, resp.TTL)
				lease = resp.ID
			}
			return err
		}); err != nil {
			return
		}
		if err := d.call("put with lease", func(ctx context.Context) error {
			_, err := c.Put(ctx, key, "", clientv3.WithLease(lease))
			return err
		}, rpctypes.ErrLeaseNotFound); err != nil {
			if d.ended() || isOneOf(err, []error{rpctypes.ErrLeaseNotFound}) {
				l.checkEnd(d.t)
			}
			continue
		}
		for gone := false; !gone; time.Sleep(20 * time.Millisecond) {
			err, _ := d.must("get", func(ctx context.Context) error {
				resp, err := c.Get(ctx, key)
				gone = err == nil && len(resp.Kvs) == 0
				return err
			})
			if err != nil {
				return
			}
			if gone {
				l.checkEnd(d.t)
			} else if lived := time.Since(l.sent); lived > callLimit+l.ttl {
				d.t.Errorf("%s is there after %v", key, lived)
				return
			}
		}
	}
}

// moving moves amounts between accounts by concurrency's STM. The sum stays.
func (d *drill) moving() {
	const accounts, each = 3, 100
	c := d.client(1)
	account := func(i int) string { return fmt.Sprintf("account-%d", i%accounts) }
	var start []clientv3.Op
	for i := range accounts {
		start = append(start, clientv3.OpPut(account(i), strconv.Itoa(each)))
	}
	d.must("txn", func(ctx context.Context) error {
		_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(account(0)), "=", 0)).Then(start...).Commit()
		return err
	})
	for i := 0; !d.ended(); i++ {
		d.call("STM", func(ctx context.Context) error {
			_, err := concurrency.NewSTM(c, func(stm concurrency.STM) error {
				from, _ := strconv.Atoi(stm.Get(account(i)))
				to, _ := strconv.Atoi(stm.Get(account(i + 1)))
				stm.Put(account(i), strconv.Itoa(from-1))
				stm.Put(account(i+1), strconv.Itoa(to+1))
				return nil
			}, concurrency.WithAbortContext(ctx))
			return err
		})
		d.must("get", func(ctx context.Context) error {
			resp, err := c.Get(ctx, "account-", clientv3.WithPrefix())
			if err != nil {
				return err
			}
			sum := 0
			for _, kv := range resp.Kvs {
				n, _ := strconv.Atoi(string(kv.Value))
				sum += n
			}
			if sum != accounts*each {
				d.t.Errorf("the accounts add up to %d: %s", sum, show(resp.Kvs...))
			}
			return nil
		})
		time.Sleep(10 * time.Millisecond)
	}
}

// watcherCount is how many clients watch the drill's keys, each at another member first.
const watcherCount = 3

// history is what clients wrote, and what watchers must see of it.
type history struct {
	d        *drill
	watchers []*watcher

	added, perhapsAdded atomic.Int64 // to the counter

	mu      sync.Mutex
	written map[string]map[int64]bool // acknowledged revisions, by key; mu guards it
}

// watcher watches the drill's keys from the beginning to the end.
type watcher struct {
	t    *testing.T
	seen atomic.Int64 // the last revision
	stop context.CancelFunc
	done chan struct{} // closed when no more events come; then the maps may be read

	events  map[string]map[int64]bool // revisions, by key
	version map[string]int64          // of the last event; 0 when deleted
}

// watchAll starts the watchers.
func (d *drill) watchAll() *history {
	h := &history{d: d, written: make(map[string]map[int64]bool)}
	for n := range watcherCount {
		h.watchers = append(h.watchers, d.watchKeys(n))
	}
	return h
}

// watchKeys watches the drill's keys with clientv3, which resumes by itself at another member.
func (d *drill) watchKeys(n int) *watcher {
	ctx, cancel := context.WithCancel(d.t.Context())
	w := &watcher{
		t: d.t, stop: cancel, done: make(chan struct{}),
		events: make(map[string]map[int64]bool), version: make(map[string]int64),
	}
	watched := d.client(n).Watch(ctx, drillKeys, clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		defer close(w.done)
		for resp := range watched {
			if err := resp.Err(); err != nil {
				d.t.Errorf("a watch has ended: %v", err)
			}
			for _, e := range resp.Events {
				w.event(e)
			}
			d.log.called("watch", 0, 0, nil)
		}
	}()
	d.t.Cleanup(w.end)
	return w
}

func (w *watcher) end() {
	w.stop()
	<-w.done
}

// event notes one event. Revisions do not go back, and of each key every version is seen, once and in order.
func (w *watcher) event(e *clientv3.Event) {
	key, revision := string(e.Kv.Key), e.Kv.ModRevision
	if last := w.seen.Load(); revision <= last { // each write of the drill is one key at one revision
		w.t.Errorf("an event of revision %d after one of %d", revision, last)
	}
	w.seen.Store(revision)
	note(w.events, key, revision)
	if e.Type == clientv3.EventTypeDelete {
		w.version[key] = 0
		return
	}
	if want := w.version[key] + 1; e.Kv.Version != want {
		w.t.Errorf("%s: version %d at revision %d, where %d is next", key, e.Kv.Version, revision, want)
	}
	w.version[key] = e.Kv.Version
}

func note(in map[string]map[int64]bool, key string, revision int64) {
	if in[key] == nil {
		in[key] = make(map[int64]bool)
	}
	in[key][revision] = true
}

// acked notes a write that was acknowledged.
func (h *history) acked(key string, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	note(h.written, key, revision)
}

// check compares the history with the keys at the end.
func (h *history) check(ctx context.Context, c *clientv3.Client) {
	t := h.d.t
	last, err := c.Put(ctx, drillKeys+"last", "")
	wantOK(t, "put", err)
	now, err := c.Get(ctx, drillKeys, clientv3.WithPrefix())
	wantOK(t, "get", err)
	for _, w := range h.watchers {
		eventually(t, waitLimit, "the watch is at its end", func() bool { return w.seen.Load() >= last.Header.Revision })
		w.end()
		w.check(h.written, now.Kvs)
	}
	for _, kv := range now.Kvs {
		if string(kv.Key) == drillKeys+"counter" {
			n, _ := strconv.ParseInt(string(kv.Value), 10, 64)
			if least := h.added.Load(); n < least || n > least+h.perhapsAdded.Load() {
				t.Errorf("the counter is %d, of %d acknowledged additions and %d perhaps made", n, least, h.perhapsAdded.Load())
			}
			wantEqual(t, "additions", kv.Version, n)
		}
	}
}

// check compares the events with the acknowledged writes, and with the keys at the end.
func (w *watcher) check(written map[string]map[int64]bool, now []*mvccpb.KeyValue) {
	for key, revisions := range written {
		for revision := range revisions {
			if !w.events[key][revision] {
				w.t.Errorf("%s: the write of revision %d was acknowledged and no event came", key, revision)
			}
		}
	}
	for _, kv := range now {
		wantEqual(w.t, string(kv.Key)+": version", w.version[string(kv.Key)], kv.Version)
	}
}
