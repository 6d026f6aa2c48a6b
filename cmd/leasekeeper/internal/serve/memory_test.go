package serve

import (
	"context"
	"runtime"
	"testing"
	"time"
)

func TestMemoryIsReturnedWhenTheLoadHasEnded(t *testing.T) {
	const MiB = 1 << 20
	var heap thrift
	allocated := uint64(0)
	for i, step := range []struct {
		grown, taken, kept uint64 // MiB; kept is set if memory is returned
		due                bool
	}{
		{grown: 1, taken: 5},
		{grown: 500, taken: 60}, // load
		{grown: 5, taken: 60},
		{grown: 4, taken: 60, due: true, kept: 20}, // the load has ended
		{grown: 0, taken: 20},
		{grown: 3, taken: 28},
		{grown: 3, taken: 29, due: true, kept: 200},
		{grown: 3, taken: 225},
		{grown: 3, taken: 226, due: true, kept: 200}, // an eighth of a large heap
		{grown: 0, taken: 10},
	} {
		allocated += step.grown * MiB
		if due := heap.due(allocated, step.taken*MiB); due != step.due {
			t.Fatalf("step %d: due is %v", i, due)
		}
		if step.due {
			heap.kept = step.kept * MiB
		}
	}
}

func TestFreedMemoryIsReturnedToTheSystem(t *testing.T) {
	t.Setenv("GOGC", "")
	stop := manageHeap(context.Background())
	defer stop()
	_, before := heap()
	load := make([][]byte, 64)
	for i := range load {
		load[i] = make([]byte, 1<<20)
	}
	_, loaded := heap()
	if loaded < before+48<<20 {
		t.Fatalf("after an allocation of 64 MiB the heap went from %d to only %d bytes", before, loaded)
	}
	runtime.KeepAlive(load)
	load = nil
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, after := heap()
		if after < loaded-48<<20 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the heap takes %d bytes long after %d were in use and %d before", after, loaded, before)
		}
	}
}

// Memory is short before the live heap reaches 70 % of the limit, and garbage alone does not make it short.
func TestMemoryIsShortByTheLiveHeapAlone(t *testing.T) {
	g := gauge{limit: 1000}
	now := time.Unix(1000, 0)
	for _, step := range []struct {
		live, all     int64
		short, doubts bool
	}{
		{100, 500, false, false},
		{100, 700, false, true}, // much of it may be live
		{300, 700, false, false},
		{620, 650, true, false},
		{590, 600, true, false}, // memory stays short until the live heap is smaller
		{570, 640, true, false}, // the whole heap is still too large
		{570, 600, false, false},
	} {
		if got := g.doubts(now, step.live, step.all); got != step.doubts {
			t.Errorf("live %d of %d: a collection is worth it: %v", step.live, step.all, got)
		}
		if got := g.update(step.live, step.all); got != step.short {
			t.Errorf("live %d of %d: short is %v", step.live, step.all, got)
		}
	}
}
