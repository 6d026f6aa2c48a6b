package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// holdLimit is how long a call may take that waits for other processes to come and go: one of them that could not
// give back what it held keeps it until its lease ends.
const holdLimit = 40 * time.Second

// guard checks that one client at a time holds a lock, and that tokens grow.
type guard struct {
	d      *drill
	what   string
	inside atomic.Int32
	last   atomic.Pointer[tenure]
}

// tenure is the time for which a client held a lock: its key, and its fencing token, which is the key's create revision.
type tenure struct {
	key   string
	token int64
}

func newGuard(d *drill, what string) *guard {
	g := &guard{d: d, what: what}
	g.last.Store(&tenure{})
	return g
}

// enter is called when a client learns that it holds, and leave before the client releases. No other client may hold in
// between.
func (g *guard) enter() {
	if n := g.inside.Add(1); n != 1 {
		g.d.t.Errorf("%s: %d hold it", g.what, n)
	}
}

// leave gets the key and the token of the tenure. They may be those of an earlier one: clientv3 does not repeat a failed
// resignation, so a candidate that believes it has resigned may still be in office.
func (g *guard) leave(key string, token int64) {
	if last := g.last.Swap(&tenure{key, token}); token < last.token || token == last.token && key != last.key {
		g.d.t.Errorf("%s: %s with token %d after %s with %d", g.what, key, token, last.key, last.token)
	}
	g.inside.Add(-1)
}

// session is a lease that outlives the drill, renewed all the time.
func (d *drill) session(c *clientv3.Client) *concurrency.Session {
	for range callTries {
		session, err := concurrency.NewSession(c, concurrency.WithTTL(60))
		if err == nil {
			d.t.Cleanup(func() {
				select {
				case <-session.Done():
					d.t.Errorf("the renewals of the session's lease %x have ended", session.Lease())
				default:
				}
				session.Orphan()
			})
			return session
		}
	}
	d.t.Error("no session")
	return nil
}

// createRevision is the token of the holder's key.
func (d *drill) createRevision(c *clientv3.Client, key string) (revision int64) {
	d.must("get", func(ctx context.Context) error {
		resp, err := c.Get(ctx, key)
		if err == nil && len(resp.Kvs) == 0 {
			d.t.Errorf("%s is gone while it is held", key)
		} else if err == nil {
			revision = resp.Kvs[0].CreateRevision
		}
		return err
	})
	return revision
}

const drillLock = "lock"

// lockService takes the lock by etcd's service, and gives it back.
func (d *drill) lockService(g *guard, n int) func() {
	return func() {
		c := d.client(n)
		session := d.session(c)
		if session == nil {
			return
		}
		l := v3lockpb.NewLockClient(c.ActiveConnection())
		for !d.ended() {
			var key []byte
			if err, _ := d.must("Lock service: lock", func(ctx context.Context) error {
				resp, err := l.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(drillLock), Lease: int64(session.Lease())})
				key = resp.GetKey()
				return err
			}); err != nil {
				return
			}
			g.enter()
			g.leave(string(key), d.createRevision(c, string(key)))
			d.must("Lock service: unlock", func(ctx context.Context) error {
				_, err := l.Unlock(ctx, &v3lockpb.UnlockRequest{Key: key})
				return err
			})
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// mutexes takes the same lock by clientv3's recipe.
func (d *drill) mutexes(g *guard, n int) func() {
	return func() {
		session := d.session(d.client(n))
		if session == nil {
			return
		}
		m := concurrency.NewMutex(session, drillLock)
		for !d.ended() {
			if err, _ := d.must("Mutex: lock", m.Lock); err != nil {
				return
			}
			g.enter()
			g.leave(m.Key(), d.createRevision(session.Client(), m.Key()))
			d.must("Mutex: unlock", m.Unlock, concurrency.ErrLockReleased)
			time.Sleep(5 * time.Millisecond)
		}
	}
}

const drillOffice = "office"

// electionService comes into office by etcd's service, says something, and resigns.
func (d *drill) electionService(g *guard, n int) func() {
	return func() {
		c := d.client(n)
		session := d.session(c)
		if session == nil {
			return
		}
		es := epb.NewElectionClient(c.ActiveConnection())
		for !d.ended() {
			var office *epb.LeaderKey
			if err, _ := d.must("Election service: campaign", func(ctx context.Context) error {
				resp, err := es.Campaign(ctx, &epb.CampaignRequest{Name: []byte(drillOffice), Value: []byte("one"), Lease: int64(session.Lease())})
				office = resp.GetLeader()
				return err
			}); err != nil {
				return
			}
			g.enter()
			d.must("Election service: proclaim", func(ctx context.Context) error {
				_, err := es.Proclaim(ctx, &epb.ProclaimRequest{Leader: office, Value: []byte("two")})
				return err
			})
			d.must("Election service: leader", func(ctx context.Context) error {
				resp, err := es.Leader(ctx, &epb.LeaderRequest{Name: []byte(drillOffice)})
				if err == nil && (!bytes.Equal(resp.Kv.Key, office.Key) || string(resp.Kv.Value) != "two") {
					d.t.Errorf("%s leads, and not %s, which said two", show(resp.Kv), office.Key)
				}
				return err
			})
			g.leave(string(office.Key), office.Rev)
			d.must("Election service: resign", func(ctx context.Context) error {
				_, err := es.Resign(ctx, &epb.ResignRequest{Leader: office})
				return err
			})
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// elections comes into the same office by clientv3's recipe.
func (d *drill) elections(g *guard, n int) func() {
	return func() {
		session := d.session(d.client(n))
		if session == nil {
			return
		}
		for !d.ended() {
			e := concurrency.NewElection(session, drillOffice)
			if err, _ := d.must("Election: campaign", func(ctx context.Context) error { return e.Campaign(ctx, "one") }); err != nil {
				return
			}
			g.enter()
			d.must("Election: proclaim", func(ctx context.Context) error { return e.Proclaim(ctx, "two") })
			g.leave(e.Key(), e.Rev())
			d.must("Election: resign", e.Resign)
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// observing follows the candidate in office. Its answers never go back.
func (d *drill) observing() {
	es := epb.NewElectionClient(d.client(2).ActiveConnection())
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	go func() {
		<-d.over
		cancel()
	}()
	var last inOffice
	for !d.ended() {
		d.log.called("Election service: observe", 0, 0, d.observe(ctx, es, &last))
		time.Sleep(20 * time.Millisecond) // before it is asked again
	}
}

// inOffice is an observed candidate: the revisions of its campaign and of its last proclamation.
type inOffice struct{ office, said int64 }

// observe is one stream, until it ends. Its end with the drill is none.
func (d *drill) observe(ctx context.Context, es epb.ElectionClient, last *inOffice) error {
	stream, err := es.Observe(ctx, &epb.LeaderRequest{Name: []byte(drillOffice)})
	for err == nil {
		var resp *epb.LeaderResponse
		if resp, err = stream.Recv(); err == nil {
			now := inOffice{resp.Kv.CreateRevision, resp.Kv.ModRevision}
			if now.office < last.office || now.office == last.office && now.said < last.said {
				d.t.Errorf("observed %+v after %+v", now, *last)
			}
			*last = now
			d.log.called("Election service: observe", 0, 0, nil)
		}
	}
	if d.ended() && status.Code(err) == codes.Canceled {
		return nil
	}
	if !mayBeTriedAgain(err) {
		d.t.Errorf("observe: %v", err)
	}
	return err
}

// etcdctl puts and reads with a process for each.
func (d *drill) etcdctl() {
	for i := 1; !d.ended(); i++ {
		want := fmt.Sprint(i)
		put := d.ctlCall("etcdctl put", "put", "by-etcdctl", want)
		got := d.ctlCall("etcdctl get", "get", "by-etcdctl", "--print-value-only")
		if put.ok && got.ok && strings.TrimSpace(got.out) != want {
			d.t.Errorf("etcdctl reads %q after %q was acknowledged", got.out, want)
		}
		d.ctlCall("etcdctl lease list", "lease", "list")
		time.Sleep(50 * time.Millisecond)
	}
}

type ctlCalled struct {
	out string
	ok  bool
}

// ctlCall runs etcdctl, which ends in time. If it fails it says one of the things on which one tries again.
func (d *drill) ctlCall(kind string, args ...string) (called ctlCalled) {
	d.call(kind, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, binaries.etcdctl, append([]string{"--endpoints", strings.Join(d.g.endpoints(), ",")}, args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Env, cmd.Stdout, cmd.Stderr = ctlEnvironment(), &stdout, &stderr
		err := cmd.Run()
		called = ctlCalled{stdout.String(), err == nil}
		if err == nil {
			return nil
		}
		return saidBy(&stderr, err)
	})
	return called
}

// transientTexts are what processes say, where clients in our own process are given a code.
var transientTexts = []string{
	"etcdserver: request timed out", "etcdserver: no leader", "etcdserver: leader changed", "etcdserver: server stopped", "connection refused", "EOF", "connection reset by peer",
	"outcome unknown", "the leader's lease has expired", "the member is catching up",
}

// saidBy returns the last output of a process as an error.
func saidBy(stderr *bytes.Buffer, err error) error {
	all := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	text := all[len(all)-1]
	for _, known := range transientTexts {
		if strings.Contains(text, known) {
			return status.Errorf(codes.Unavailable, "%s", known)
		}
	}
	return fmt.Errorf("%w: %s", err, text)
}

// sharing has processes and mutexes take turns at one name. Each makes a directory while it holds the name. That fails if
// the directory exists.
func (d *drill) sharing(way string) func() {
	inside := filepath.Join(d.dir, "inside")
	script := fmt.Sprintf("mkdir '%s' && rmdir '%s'", inside, inside)
	return func() {
		var m *concurrency.Mutex
		if way == "mutex" {
			session := d.session(d.client(0))
			if session == nil {
				return
			}
			m = concurrency.NewMutex(session, "ns/name")
		}
		for ; !d.ended(); time.Sleep(50 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(d.t.Context(), holdLimit)
			began := time.Now()
			var err error
			switch way {
			case "mutex":
				err = d.shareByMutex(ctx, m, inside)
			case "run":
				store := "leasekeeper://" + strings.Join(d.g.endpoints(), ",") + "/ns"
				err = d.process(exec.CommandContext(ctx, binaries.server[leasekeeper], "run", "--store", store, "name", "-c", script))
			case "etcdctl":
				err = d.process(exec.CommandContext(ctx, binaries.etcdctl,
					"--endpoints", strings.Join(d.g.endpoints(), ","), "lock", "ns/name", "--", "sh", "-c", script))
			}
			if ctx.Err() != nil || err != nil && !mayBeTriedAgain(err) && !waitedPastCompaction(err, time.Since(began)) {
				d.t.Errorf("%s at a shared name: after %v: %v", way, time.Since(began), err)
			}
			cancel()
			d.log.called(way+" at a shared name", time.Since(began), 0, err)
		}
	}
}

// waitedPastCompaction reports whether a client has waited for a lock for so long that the revision is compacted at which its
// watch began. If its member fails then, the watch cannot resume. etcd's clients give up, and may wait again.
func waitedPastCompaction(err error, waited time.Duration) bool {
	return waited > compactAfter && strings.Contains(err.Error(), "required revision has been compacted")
}

func (d *drill) process(cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr, cmd.Dir = ctlEnvironment(), &stderr, d.t.TempDir()
	if err := cmd.Run(); err != nil {
		return saidBy(&stderr, err)
	}
	return nil
}

func (d *drill) shareByMutex(ctx context.Context, m *concurrency.Mutex, inside string) error {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	if err := os.Mkdir(inside, 0o700); err != nil {
		d.t.Errorf("the mutex at a shared name: %v", err)
	} else if err := os.Remove(inside); err != nil {
		d.t.Errorf("the mutex at a shared name: %v", err)
	}
	d.must("Mutex: unlock", m.Unlock, concurrency.ErrLockReleased)
	return nil
}

// names takes a name by our own service, over HTTP at one member after the other, and gives it back.
func (d *drill) names() {
	for i := 0; !d.ended(); i++ {
		name, lease := "http-name", fmt.Sprint(1_000_000+i)
		at := i
		ask := func(path, format string, args ...any) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				at++
				return d.post(ctx, d.g.reachable[at%len(d.g.reachable)], path, fmt.Sprintf(format, args...))
			}
		}
		if err, _ := d.must("acquire over HTTP", ask("acquire", `{"name": %q, "lease": %q, "ttlMs": 60000}`, name, lease)); err != nil {
			return
		}
		d.must("get over HTTP", ask("get", `{"name": %q}`, name))
		d.must("release over HTTP", ask("release", `{"name": %q, "lease": %q}`, name, lease))
		time.Sleep(20 * time.Millisecond)
	}
}

// post asks one member. A member that is down is one to try again.
func (d *drill) post(ctx context.Context, m *server, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.httpAddr+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return status.Errorf(codes.Unavailable, "not reached: %v", errors.Unwrap(err))
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	switch {
	case err != nil && ctx.Err() == nil:
		return status.Errorf(codes.Unavailable, "the answer breaks off: %v", err)
	case resp.StatusCode == http.StatusServiceUnavailable, strings.Contains(text.String(), "outcome unknown"):
		return status.Errorf(codes.Unavailable, "%s", &text)
	case resp.StatusCode != http.StatusOK || strings.Contains(text.String(), "REFUSED") || strings.Contains(text.String(), `"error"`):
		return fmt.Errorf("%s %s: %s: %s", path, body, resp.Status, &text)
	}
	return nil
}
