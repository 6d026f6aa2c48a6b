package gocronlease_test

import (
	"context"
	"testing"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/postgres" // the page's program uses it
	gocronlease "github.com/leasekeeper/leasekeeper/contrib/gocron"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func TestPageShowsProgramThatCompiles(t *testing.T) {
	pageprogram.Vet(t, "../../docs/contrib/gocron.md", nil)
	pageprogram.Resolve(t, "../../docs/contrib/gocron.md", nil, "../..", "contrib/gocron")
	pageprogram.Shows(t, "../../docs/contrib/gocron.md", "page_test.go")
}

// scheduleWithElector has the code of the page that is no program.
func scheduleWithElector(ctx context.Context, keeper *leasekeeper.Keeper, backUp leasekeeper.Func) (<-chan error, error) {
	elector := gocronlease.NewElector(keeper, "app/scheduler")
	over := make(chan error, 1)
	go func() { over <- elector.Campaign(ctx) }() // resigns when ctx ends
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return over, err
	}
	scheduler.NewJob(gocron.CronJob("15 3 * * *", false), elector.Task(backUp))
	scheduler.Start()
	return over, nil
}

var _ = scheduleWithElector // the test compiles it
