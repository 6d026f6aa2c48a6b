package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var failoverFlag = flag.Duration("failover", 30*time.Second, "how long TestClientsOutliveRepeatedLeaderKills goes on killing")

const (
	// callLimit is how long any call may take whose answer does not depend on what other clients do.
	callLimit = 10 * time.Second
	// killEvery is the time between two kills, deadFor how long a killed member stays away.
	killEvery = 3 * time.Second
	deadFor   = 700 * time.Millisecond
	// callTries is how often what failed is tried again, also after callLimit, and attemptsLimit how many attempts the
	// client library makes of its own for one call.
	callTries     = 10
	attemptsLimit = 10
	// againAfter is the pause before a repetition: a client that cannot reach a member fails at once.
	againAfter = 50 * time.Millisecond
	// retriesPerFault bounds how often one worker has to try again for one kill or removal of a member, on the average.
	retriesPerFault = 5
)

// The leader is killed every few seconds while clients use the cluster. Every call ends in time, with an answer or a
// retryable error. Acknowledged changes stay, and nothing has two holders.
func TestClientsOutliveRepeatedLeaderKills(t *testing.T) {
	t.Parallel()
	if len(chosen(follower, everyone)) == 0 {
		return
	}
	d := startDrill(startCluster(t, leasekeeper))
	kills := d.killLeaders(*failoverFlag)
	d.end(kills)
	if kills < int(*failoverFlag/(4*killEvery)) {
		t.Errorf("only %d kills in %v", kills, *failoverFlag)
	}
}

// drill is clients that use all of the API while the members of their cluster come and go.
type drill struct {
	t         *testing.T
	g         *cluster
	log       *tally
	history   *history
	registers *registers
	dir       string        // for what processes of the workers leave behind
	over      chan struct{} // closed when the workers must end
	workers   int
	working   sync.WaitGroup
}

// startDrill starts clients on a cluster. They know the addresses that the cluster has now.
func startDrill(g *cluster) *drill {
	d := &drill{t: g.t, g: g, log: newTally(), dir: g.t.TempDir(), over: make(chan struct{})}
	d.history, d.registers = d.watchAll(), newRegisters(d)
	workers := slices.Concat(d.registers.workers(), d.allWorkers())
	d.workers = len(workers)
	for _, work := range workers {
		d.working.Go(work)
	}
	return d
}

// end stops the clients, and checks what they saw while members failed.
func (d *drill) end(faults int) {
	d.t.Helper()
	close(d.over)
	d.working.Wait()
	d.settle()
	d.registers.check()
	d.log.report(d.t, faults, d.workers)
}

func (d *drill) ended() bool {
	select {
	case <-d.over:
		return true
	default:
		return false
	}
}

// settle checks, when all members are back, what must be so at the end.
func (d *drill) settle() {
	d.g.leader()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	d.history.check(ctx, d.client(0))
}

// killLeaders kills the present leader, and starts it again a little later.
func (d *drill) killLeaders(total time.Duration) (kills int) {
	for end := time.Now().Add(total); time.Now().Before(end); {
		next := time.After(killEvery)
		leader, err := d.g.agreed(waitLimit)
		if err != nil {
			d.t.Errorf("after %d kills: %v", kills, err)
			return kills
		}
		leader.kill()
		kills++
		time.Sleep(deadFor) // the others are to go on without it
		if err := leader.run(); err != nil {
			d.t.Errorf("starting %s again: %v", leader.name, err)
			return kills
		}
		<-next
	}
	return kills
}

// client is one that knows all members, the nth first. It counts its attempts. Every other client also follows the list of
// members that the cluster has.
func (d *drill) client(first int) *clientv3.Client {
	endpoints := d.g.endpoints()
	first %= len(endpoints)
	c, err := clientv3.New(clientv3.Config{
		Endpoints:        slices.Concat(endpoints[first:], endpoints[:first]),
		AutoSyncInterval: time.Duration(first%2) * time.Second, // 0: never
		Logger:           zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(d.log.countUnary), grpc.WithChainStreamInterceptor(d.log.countStream),
		},
	})
	wantOK(d.t, "client", err)
	d.t.Cleanup(func() { c.Close() })
	return c
}

// call makes one call, which has to end in time. It returns nil, or an error after which it may be tried again; for
// anything else the test fails.
func (d *drill) call(kind string, call func(ctx context.Context) error, known ...error) error {
	_, err := d.counted(kind, call, known)
	return err
}

// counted is call. It also returns how many attempts at it failed, by clientv3's own repetitions too.
func (d *drill) counted(kind string, call func(ctx context.Context) error, known []error) (failed int64, err error) {
	attempts := new(atomic.Int64)
	ctx, cancel := context.WithTimeout(context.WithValue(d.t.Context(), attemptsKey{}, attempts), callLimit)
	defer cancel()
	began := time.Now()
	err = call(ctx)
	took := time.Since(began)
	d.log.called(kind, took, attempts.Load(), err)
	switch {
	case took > callLimit:
		d.t.Errorf("%s: took %v: %v", kind, took, err)
	case attempts.Load() > attemptsLimit:
		d.t.Errorf("%s: %d attempts in %v: %v", kind, attempts.Load(), took, err)
	case err == nil || isOneOf(err, known):
	case !mayBeTriedAgain(err):
		d.t.Errorf("%s: after %v: %v", kind, took, err)
	}
	return attempts.Load(), err
}

// must makes a call again and again until it succeeds, or ends with one of the errors that are answers as well. It
// reports whether it did, and whether an attempt before may have had an effect.
func (d *drill) must(kind string, do func(ctx context.Context) error, known ...error) (err error, repeated bool) {
	for tries, began := 0, time.Now(); tries < callTries || time.Since(began) < callLimit; tries++ {
		var failed int64
		if failed, err = d.counted(kind, do, known); err == nil || isOneOf(err, known) {
			return err, repeated || failed > 1
		}
		if !mayBeTriedAgain(err) {
			break
		}
		repeated = true
		time.Sleep(againAfter)
	}
	d.t.Errorf("%s: still %v", kind, err)
	return err, repeated
}

func isOneOf(err error, known []error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}

// mayBeTriedAgain says whether an error is of the kind that a failing leader may cause.
func mayBeTriedAgain(err error) bool { return status.Code(asStatus(err)) == codes.Unavailable }

// asStatus undoes what clientv3 makes of errors that it knows.
func asStatus(err error) error {
	var coded interface{ Code() codes.Code }
	if errors.As(err, &coded) {
		return status.Error(coded.Code(), err.Error())
	}
	return err
}

type attemptsKey struct{}

// tally counts calls, attempts and errors.
type tally struct {
	mu      sync.Mutex
	kinds   map[string]*kindTally
	errors  map[string]int
	streams int
}

type kindTally struct {
	calls, failed int
	retries       int64
	longest       time.Duration
	most          int64 // attempts of one call that failed
}

func newTally() *tally {
	return &tally{kinds: make(map[string]*kindTally), errors: make(map[string]int)}
}

// countUnary sees every attempt of clientv3, also those that it makes again by itself.
func (y *tally) countUnary(ctx context.Context, method string, req, resp any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	err := invoke(ctx, method, req, resp, cc, o...)
	if attempts, ok := ctx.Value(attemptsKey{}).(*atomic.Int64); ok && err != nil {
		attempts.Add(1)
	}
	return err
}

func (y *tally) countStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	y.mu.Lock()
	y.streams++
	y.mu.Unlock()
	return open(ctx, desc, cc, method, o...)
}

// called notes one call. failed is how many of its attempts failed: each was tried again, or is its error.
func (y *tally) called(kind string, took time.Duration, failed int64, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	k := y.kinds[kind]
	if k == nil {
		k = &kindTally{}
		y.kinds[kind] = k
	}
	k.calls++
	k.longest, k.most = max(k.longest, took), max(k.most, failed)
	if err != nil {
		k.failed++
		text := err.Error()
		if len(text) > 150 {
			text = text[:150]
		}
		y.errors[text]++
		failed = max(failed, 1)
	}
	k.retries += failed
}

// report prints the counts, and checks the bound.
func (y *tally) report(t *testing.T, faults, workers int) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	var out strings.Builder
	var calls int
	var retries int64
	for _, kind := range sortedKeys(y.kinds) {
		k := y.kinds[kind]
		calls, retries = calls+k.calls, retries+k.retries
		fmt.Fprintf(&out, "%-28s %6d calls  %4d failed  %4d retries  at most %2d of one call  longest %v\n",
			kind, k.calls, k.failed, k.retries, k.most, k.longest.Round(time.Millisecond))
		if k.calls == k.failed {
			t.Errorf("%s: none of %d calls succeeded", kind, k.calls)
		}
	}
	for _, text := range sortedKeys(y.errors) {
		fmt.Fprintf(&out, "%6d × %s\n", y.errors[text], text)
	}
	limit := int64(faults * workers * retriesPerFault)
	t.Logf("%d faults, %d workers, %d calls, %d retries (limit %d), %d streams opened\n%s", faults, workers, calls, retries, limit, y.streams, &out)
	if retries > limit {
		t.Errorf("%d retries, more than %d", retries, limit)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
