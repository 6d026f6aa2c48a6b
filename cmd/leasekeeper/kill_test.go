package main

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	killRounds = 100
	// The load of a round lasts between loadMin and loadMax. Then the test kills the server.
	loadMin = 40 * time.Millisecond
	loadMax = 180 * time.Millisecond
	// checkLimit bounds the checks of a round.
	checkLimit = 30 * time.Second
)

// The test kills a server a hundred times with SIGKILL while clients use it. After each restart it checks that
// everything acknowledged is there: puts and deletes with their revisions, leases with their remaining time, and ends
// of leases with the deletion of their keys. A request without an answer may have taken effect or not, but after the
// restart the outcome must not change.
func TestKilledServerLosesNoAcknowledgedChange(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	book := newLedger(t)
	dir := t.TempDir()
	began := time.Now()
	for round := range killRounds + 1 {
		r := launchAt(t, dir)
		c := connect(t, r.endpoint)
		ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
		book.check(ctx, c, round == killRounds)
		cancel()
		if t.Failed() || round == killRounds {
			c.conn.Close()
			r.kill()
			break
		}
		after := loadMin + time.Duration(chance.Int64N(int64(loadMax-loadMin)))
		load(t, book, c, round, chance.Uint64(), func() {
			time.Sleep(after)
			r.kill()
		})
		c.conn.Close()
	}
	t.Logf("%d rounds in %v: %s", killRounds, time.Since(began).Round(time.Millisecond), book.summary())
	book.mustHaveTriedEverything()
}

// launchAt starts a server in a directory.
func launchAt(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	r, err := launch(launchOptions{
		dir:  dir,
		env:  []string{"PATH=" + os.Getenv("PATH")},
		args: append([]string{"--data-dir", "data", "--log-level", "warn"}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	return r
}

// stubs are the gRPC clients of one connection.
type stubs struct {
	conn  *grpc.ClientConn
	kv    pb.KVClient
	lease pb.LeaseClient
}

func connect(t *testing.T, endpoint string) stubs {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	return stubs{conn, pb.NewKVClient(conn), pb.NewLeaseClient(conn)}
}

// load runs clients until kill has returned and each client has noticed the end of the server.
func load(t *testing.T, book *ledger, c stubs, round int, seed uint64, kill func()) {
	var clients sync.WaitGroup
	for number, work := range []func(*worker){
		(*worker).writes, (*worker).writes, (*worker).writes, (*worker).writes,
		(*worker).leases, (*worker).leases, (*worker).leases, (*worker).shortLeases,
	} {
		w := &worker{
			book: book, stubs: c, round: round, number: number,
			chance: rand.New(rand.NewPCG(seed, uint64(number))),
		}
		clients.Go(func() {
			defer w.cancelOnReturn(t.Context())()
			work(w)
		})
	}
	kill()
	clients.Wait()
}
