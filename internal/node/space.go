package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// spaceInterval is the time between two readings of the free space. With a reserve of the default size, even a fast
// disk cannot fill up within it.
const spaceInterval = 200 * time.Millisecond

// watchSpace reports the free space to the member until it stops. It has a goroutine of its own because a file system
// may take arbitrarily long to answer.
func (n *Node) watchSpace() {
	ticker := time.NewTicker(spaceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-n.stopping:
			return
		case <-n.done:
			return
		}
		select {
		case n.intake <- submission{event: n.readSpace()}:
		case <-n.stopping:
			return
		case <-n.done:
			return
		}
	}
}

func (n *Node) readSpace() replica.Space {
	free, err := n.reserve.Look()
	if err != nil {
		if n.spaceUnread.CompareAndSwap(false, true) && !errors.Is(err, vfs.ErrUnsupported) {
			n.log.Warn("the free space of the data directory cannot be read; it is not watched until it can", "error", err)
		}
		free = replica.UnknownFree
	} else {
		n.spaceUnread.Store(false)
	}
	return replica.Space{Free: free, Used: liveBytes(n.db.Metrics()), Ordered: n.ordered.Load()}
}

// freeBytes returns the default of Config.FreeBytes.
func freeBytes(files vfs.FS) func(dir string) (uint64, error) {
	return func(dir string) (uint64, error) {
		usage, err := files.GetDiskUsage(dir)
		return usage.AvailBytes, err
	}
}

// CheckSpace reads the free space at once, and returns the shortage before and after. Unlike the periodic readings it
// ends a shortage as soon as the limits are met, without any extra distance from them.
func (n *Node) CheckSpace(ctx context.Context) (before, after replica.Shortage, err error) {
	if err := n.holdDatabase(); err != nil {
		return 0, 0, err
	}
	seen := n.readSpace()
	n.releaseDatabase()
	seen.Asked = true
	before = n.Shortage() // read it before the event is handled
	if err := n.submit(ctx, seen); err != nil {
		return 0, 0, err
	}
	after, err = look(ctx, n, func(r *replica.Replica, _ clock.Instant) replica.Shortage { return r.Shortage() })
	if err != nil {
		return 0, 0, err
	}
	return before, after, nil
}

// OrderShortage makes the member refuse puts and grants as if space were short, or ends that. It returns the shortage
// before and after. A restart ends it too.
func (n *Node) OrderShortage(ctx context.Context, raised bool) (before, after replica.Shortage, err error) {
	n.ordered.Store(raised)
	return n.CheckSpace(ctx)
}

// Shortage returns the current shortage of space.
func (n *Node) Shortage() replica.Shortage { return replica.Shortage(n.shortage.Load()) }

// logShortage logs when a shortage begins or ends.
func (n *Node) logShortage() {
	is := n.replica.Shortage()
	if was := replica.Shortage(n.shortage.Swap(int32(is))); was == is {
		return
	}
	seen, limits := n.replica.Space()
	free := "unknown"
	if seen.Free != replica.UnknownFree {
		free = fmt.Sprint(seen.Free)
	}
	space := []any{"free_bytes", free, "min_free_bytes", limits.MinFree, "data_bytes", seen.Used, "quota_bytes", limits.Quota}
	if is == replica.Enough {
		n.log.Info("there is space again: puts and grants are served", space...)
		return
	}
	n.log.Warn("puts and grants are refused: "+is.String()+"; renewals, ends of leases, deletes and compaction go on", space...)
}
