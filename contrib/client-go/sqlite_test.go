package clientgolease_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"
	clientgolease "github.com/leasekeeper/leasekeeper/contrib/client-go"
)

// Electors of three keepers on one SQLite file campaign again and again, and each leader stops after a moment.
func TestElectorsOnASQLiteFileLeadInTurn(t *testing.T) {
	const candidates, rounds = 3, 8
	url := "sqlite:" + filepath.Join(t.TempDir(), "leases.db")
	var leading, tenures atomic.Int32
	var last atomic.Uint64
	var all sync.WaitGroup
	enough, finish := context.WithTimeout(t.Context(), 2*time.Minute)
	defer finish()
	for range candidates {
		k, err := leasekeeper.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := k.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
		lock, err := clientgolease.New(k, name, clientgolease.Options{RetryPeriod: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var stop atomic.Pointer[context.CancelFunc]
		elector, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if n := leading.Add(1); n != 1 {
					t.Errorf("%d lead", n)
				}
				token := uint64(lock.Lease().Token())
				if before := last.Swap(token); token <= before {
					t.Errorf("token %d after %d", token, before)
				}
				(*stop.Load())()
				<-ctx.Done()
				time.Sleep(10 * time.Millisecond) // the end of the work
				leading.Add(-1)
				if tenures.Add(1) == candidates*rounds {
					finish()
				}
			},
			OnStoppedLeading: func() {},
		}))
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for enough.Err() == nil {
				ctx, cancel := context.WithCancel(enough)
				stop.Store(&cancel)
				elector.Run(ctx)
				cancel()
			}
		})
	}
	all.Wait()
	if n := tenures.Load(); n < candidates*rounds {
		t.Errorf("%d tenures", n)
	}
}
