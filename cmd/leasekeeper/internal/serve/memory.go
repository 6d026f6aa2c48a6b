package serve

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/node"
)

// How a server uses memory: under load it lets garbage lie, so that collecting it costs little; when the
// load is over it gives the memory back.
const (
	// reserveBytes are never touched, so they take no memory. But the collector counts them as in use, and
	// so lets the heap of a small server grow to 64 MiB before it works, instead of to 4 MiB.
	reserveBytes = 32 << 20

	// lookInterval is how often it is looked whether there is a load: whether more than busyBytes were
	// allocated since.
	lookInterval = time.Second
	busyBytes    = 4 << 20
	// worthwhile is the least that is given back, of a small heap. Of a large one it is an eighth.
	worthwhile = 8 << 20
)

// thrift decides when to give memory back.
type thrift struct {
	allocated uint64 // in all, when it last looked
	kept      uint64 // what the heap took after the last time
}

// due says whether it is worthwhile to give memory back now. Collecting costs most while there is a load,
// and then the memory would soon be needed again.
func (t *thrift) due(allocated, taken uint64) bool {
	busy := allocated-t.allocated > busyBytes
	t.allocated = allocated
	return !busy && taken > t.kept+max(worthwhile, t.kept/8)
}

// Parts of the memory limit, in hundredths.
const (
	// collectAt is from when on the runtime collects garbage for the sake of the limit, whatever that costs. What is
	// above it is for what the runtime does not count.
	collectAt = 90
	// shortAt is the live heap at which what stays in memory is refused, and plentyAt the one at which that ends.
	shortAt, plentyAt = 62, 58
	// doubtAt is how much the heap may take, garbage included, until it is worth a collection to learn what is live.
	doubtAt = 62
)

const (
	// memoryLook is the time between two looks at the heap, and doubtPause the least between two collections that are
	// made to learn what is live.
	memoryLook = 100 * time.Millisecond
	doubtPause = time.Second
)

// gauge decides when memory is short. Its methods take what the runtime tells of the heap.
type gauge struct {
	limit   int64
	short   bool
	doubted time.Time // when it last had garbage collected
}

// see takes a look: live is what the last collection has left, and all what the heap takes now.
func (g *gauge) see(live, all int64) (short bool) {
	switch percent := live * 100 / g.limit; {
	case percent >= shortAt:
		g.short = true
	case percent < plentyAt && all*100/g.limit < doubtAt:
		g.short = false
	}
	return g.short
}

// doubts says whether so much may be live that it is worth a collection to know.
func (g *gauge) doubts(now time.Time, live, all int64) bool {
	if all*100/g.limit < doubtAt || all < live+live/8 || now.Sub(g.doubted) < doubtPause {
		return false
	}
	g.doubted = now
	return true
}

// limitMemory keeps the process below its memory limit until the context ends: it has the runtime collect garbage in
// time, and tells the member when memory is short.
func limitMemory(ctx context.Context, limit int64, node *node.Node, log *slog.Logger) (stop func()) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 100 * collectAt)
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(memoryLook)
		defer ticker.Stop()
		g, before := gauge{limit: limit}, false
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				live, all := heapObjects()
				if g.doubts(now, live, all) {
					runtime.GC()
					live, all = heapObjects()
				}
				if short := g.see(live, all); short != before {
					if node.SetMemoryShort(ctx, short) != nil {
						return // the member has ended
					}
					before = short
					tellMemory(log, short, live, limit)
				}
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

func tellMemory(log *slog.Logger, short bool, live, limit int64) {
	if short {
		log.Warn("memory is short: the server refuses new leases, claims and keys attached to leases; renewals, ends of leases and all other requests go on",
			"live_bytes", live, "memory_limit", limit)
		return
	}
	log.Info("memory is available again: the server grants leases", "live_bytes", live, "memory_limit", limit)
}

// heapObjects returns how many bytes on the heap were live when garbage was collected last, and how many there are now
// with the garbage since.
func heapObjects() (live, all int64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return max(0, int64(samples[0].Value.Uint64())-reserveBytes), max(0, int64(samples[1].Value.Uint64())-reserveBytes)
}

// manageHeap sees to the memory of this process until the context ends, and waits for its own end in stop.
// A user who sets GOGC wants to decide this.
func manageHeap(ctx context.Context) (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	reserve := make([]byte, reserveBytes)
	var t thrift
	_, t.kept = heap()
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(lookInterval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
			if t.due(heap()) {
				runtime.GC() // what pools keep survives one collection
				debug.FreeOSMemory()
				_, t.kept = heap()
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
		_ = reserve[0]
	}
}

// heap returns how many bytes were allocated since the process started, and how many the heap takes of
// memory, garbage and free parts included, but for what was never touched.
func heap() (allocated, taken uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples[1:] {
		taken += s.Value.Uint64()
	}
	return samples[0].Value.Uint64(), taken - min(taken, reserveBytes)
}
