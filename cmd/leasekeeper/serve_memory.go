package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
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

// manageHeap sees to the memory of this process until the context ends, and waits for its own end in stop.
// Whoever sets GOGC wants to do so himself.
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
