package main

import (
	"context"
	"runtime"
)

// heapWarm is how many names are held before the first measurement, so that one-time costs of a client are not counted.
const heapWarm = 1_000

// clientFootprint is what this process takes, in bytes, just after its garbage was collected.
type clientFootprint struct{ heap, stacks float64 }

// clientMemory measures by how much this process grows for every name that it holds on one connection, with
// a lease for each.
func clientMemory(open library) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		opened, err := open(ctx, s, plan{1, z.idleTTL})
		if err != nil {
			return nil, err
		}
		defer opened.close()
		var held []locker
		look := func(names int) (f clientFootprint, err error) {
			more, err := holdAll(ctx, opened, len(held), len(held)+names)
			if err != nil {
				return f, err
			}
			held = append(held, more...)
			pause(ctx, z.idleTTL/renewedAt+z.settle) // so that all were renewed
			return clientHeap(), checkAll(ctx, held)
		}
		before, err := look(heapWarm)
		if err != nil {
			return nil, err
		}
		after, err := look(z.clientHeld)
		if err != nil {
			return nil, err
		}
		bytes := func(name string, grown float64) figure {
			return figure{name: name, unit: "B", value: grown / float64(z.clientHeld)}
		}
		return []figure{
			bytes("growth of the live heap per name", after.heap-before.heap),
			bytes("growth of goroutines' stacks per name", after.stacks-before.stacks),
		}, nil
	}
}

// clientHeap is the least of several measurements: other work only adds to it.
func clientHeap() clientFootprint {
	var least clientFootprint
	for i := range 5 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if i == 0 || float64(m.HeapAlloc) < least.heap {
			least.heap = float64(m.HeapAlloc)
		}
		if i == 0 || float64(m.StackInuse) < least.stacks {
			least.stacks = float64(m.StackInuse)
		}
	}
	return least
}
