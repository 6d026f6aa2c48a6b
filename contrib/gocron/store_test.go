package gocronlease_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"
	gocronlease "github.com/leasekeeper/leasekeeper/contrib/gocron"
)

// On a real store and in real time, runs of several schedulers never overlap, and their tokens grow.
func TestRunsNeverOverlapOnSQLite(t *testing.T) {
	const schedulers, wanted = 3, 10
	url := "sqlite:" + filepath.Join(t.TempDir(), "leases.db")
	count := newTally(t)
	var runs atomic.Int32
	enough := make(chan struct{})
	for range schedulers {
		k, err := leasekeeper.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		l := gocronlease.NewLocker(k)
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(l))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.NewJob(gocron.DurationJob(10*time.Millisecond), l.Task(func(ctx context.Context, lease *leasekeeper.Lease) error {
			count.begin("a scheduler", lease.Token())
			defer count.end()
			if runs.Add(1) == wanted {
				close(enough)
			}
			return nil
		}), gocron.WithName("often"))
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() {
			if err := s.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := k.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	<-enough
}
