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

// Under load the server collects garbage rarely, so that collecting costs little. When the load has ended, it returns
// memory to the system.
const (
	// reserveBytes is the size of an allocation that is never touched, so it takes no memory. The collector counts it
	// as live, and so lets the heap of a small server grow to 64 MiB before it runs, instead of to 4 MiB.
	reserveBytes = 32 << 20

	// loadInterval is the time between two checks of the load. The server is busy if it allocated more than busyBytes
	// in that time.
	loadInterval = time.Second
	busyBytes    = 4 << 20
	// worthwhile is the least growth of a small heap, in bytes, after which memory is returned. Of a large heap it is
	// an eighth.
	worthwhile = 8 << 20
)

// thrift decides when to return memory to the system.
type thrift struct {
	allocated uint64 // bytes allocated since the start of the process, at the last call of due
	kept      uint64 // bytes of the heap after memory was last returned
}

// due reports whether to return memory now. It is not due under load: then collecting costs most, and the server would
// soon need the memory again.
func (t *thrift) due(allocated, taken uint64) bool {
	busy := allocated-t.allocated > busyBytes
	t.allocated = allocated
	return !busy && taken > t.kept+max(worthwhile, t.kept/8)
}

// Parts of the memory limit, in hundredths.
const (
	// collectAt is the size at which the runtime collects garbage to keep the limit, whatever that costs. The rest is
	// for memory that the runtime does not count.
	collectAt = 90
	// shortAt is the live heap at which memory is short, so that the member refuses what stays in memory. plentyAt is
	// the live heap below which memory is no longer short.
	shortAt, plentyAt = 62, 58
	// doubtAt is the heap, with garbage, at which a collection is worthwhile to learn how much is live.
	doubtAt = 62
)

const (
	// memoryInterval is the time between two readings of the heap. doubtPause is the least time between two collections
	// that only learn how much is live.
	memoryInterval = 100 * time.Millisecond
	doubtPause     = time.Second
)

// gauge decides when memory is short. Its methods take readings of the heap, in bytes.
type gauge struct {
	limit   int64     // the memory limit in bytes
	short   bool      // whether memory is short
	doubted time.Time // when doubts last asked for a collection
}

// update takes a reading and reports whether memory is short. live is the heap after the last collection, all is the
// heap now.
func (g *gauge) update(live, all int64) (short bool) {
	switch percent := live * 100 / g.limit; {
	case percent >= shortAt:
		g.short = true
	case percent < plentyAt && all*100/g.limit < doubtAt:
		g.short = false
	}
	return g.short
}

// doubts reports whether so much of the heap may be live that a collection is worthwhile to find out.
func (g *gauge) doubts(now time.Time, live, all int64) bool {
	if all*100/g.limit < doubtAt || all < live+live/8 || now.Sub(g.doubted) < doubtPause {
		return false
	}
	g.doubted = now
	return true
}

// limitMemory keeps the process below its memory limit until the context ends or the caller calls stop. It makes the
// runtime collect garbage in time, and notifies the member when memory is short.
func limitMemory(ctx context.Context, limit int64, node *node.Node, log *slog.Logger) (stop func()) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 100 * collectAt)
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(memoryInterval)
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
				if short := g.update(live, all); short != before {
					if node.SetMemoryShort(ctx, short) != nil {
						return // the member has ended
					}
					before = short
					logMemory(log, short, live, limit)
				}
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

func logMemory(log *slog.Logger, short bool, live, limit int64) {
	if short {
		log.Warn("memory is short: the server refuses new leases, claims and keys attached to leases; it still serves renewals, ends of leases and all other requests: raise --memory-limit, or end leases",
			"live_bytes", live, "memory_limit", limit)
		return
	}
	log.Info("memory is available again: the server grants leases", "live_bytes", live, "memory_limit", limit)
}

// heapObjects returns the bytes of live objects after the last collection, and the bytes of all objects now. It does not
// count the reserve of manageHeap.
func heapObjects() (live, all int64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return max(0, int64(samples[0].Value.Uint64())-reserveBytes), max(0, int64(samples[1].Value.Uint64())-reserveBytes)
}

// manageHeap returns memory to the system after a load, until the context ends or the caller calls stop. stop waits
// until it has ended. manageHeap does nothing if the user has set GOGC.
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
		ticker := time.NewTicker(loadInterval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
			if t.due(heap()) {
				runtime.GC() // objects in pools survive one collection; FreeOSMemory makes the second
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

// heap returns the bytes that the process has allocated since its start, and the bytes of memory that the heap takes. The
// latter include garbage and free parts, but not the reserve.
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
