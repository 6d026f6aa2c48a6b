package main

import (
	"fmt"
	"slices"
	"time"
)

// againstSize is the load of a comparison: 168 measurements must end in less than an hour.
var againstSize = size{
	warm: time.Second, span: 5 * time.Second,
	waves: 3, perWave: 50,
	together: 10_000, togetherTTL: 8 * time.Second,
	held: 100_000, settle: 2 * time.Second,
	batched: 40_000, watchers: 512,
}

const (
	againstRounds      = 7
	againstQuickRounds = 2
	defaultThreshold   = 0.97
)

// A comparison is a row that two builds are compared by.
type comparison struct {
	name string
	// figure is the name of the figure that decides.
	figure string
	run    measured
}

// comparisons are the chosen rows of a comparison.
func (b *bench) comparisons() []comparison {
	z := b.againstSize()
	return slices.DeleteFunc(twelve(z), func(c comparison) bool { return !b.wanted.MatchString(c.name) })
}

func (b *bench) againstSize() size {
	if b.quick {
		return quickSize
	}
	return againstSize
}

// twelve are the rows that stand for the product: each costs a user something if it gets worse, and each is the
// shortest path through a part of the server that the others do not load.
func twelve(z size) []comparison {
	number := func(n int) string { return thousands(float64(n)) }
	return []comparison{
		// One write: log, sync, apply, answer, and each wake-up between them.
		{"puts at 1 in flight", "rate", puts(1, "")},
		// Writes that share syncs: what the member's one goroutine and the group commit can do.
		{"puts at 64 in flight", "rate", puts(64, "")},
		// Reads that the master lease allows from memory.
		{"linearizable gets at 64 in flight", "rate", gets(64, "")},
		// Making leases while many clients start at once.
		{"grants at 512 in flight", "rate", grants(512, "")},
		// The request that a lease server gets most, through etcd's API.
		{"renewals, pipelined on 8 streams", "rate", renewalsPipelined},
		// The same through our API, as a keeper with many names sends it.
		{"renewed ids, in messages of 100", "rate", renewedIDs(100, "")},
		// Claims and releases of names, with the client library.
		{"acquire and release a name, 64 in flight", "rate", lockUnlock(ownLibrary, 64, "")},
		// How soon the next waiter has a name that was released.
		{"hand-over of a name among 32", "p50, from unlock called to lock returned", handOver(ownLibrary, 32, 32, "")},
		// How soon a dead holder's key is gone.
		{"lateness of single expiries", "p50, after send + TTL", singleExpiries},
		// The same after a crash of many holders.
		{fmt.Sprintf("%s leases with one deadline", number(z.together)), "last key gone, after last answer + TTL", commonDeadline(z.together, z.togetherTTL, "")},
		// How a change reaches all its watchers.
		{fmt.Sprintf("watch fan-out to %s watchers", number(z.watchers)), "rate", watchFanOut(z.watchers)},
		// What an idle lease costs: the only row that is not about time.
		{fmt.Sprintf("memory of %s bare leases", number(z.held)), "growth of the live heap per lease", memory(z.held, grantBare, "")},
	}
}
