package main

import (
	"context"
	"fmt"
	"time"
)

// A scenario is a load on one server and its measurements.
type scenario struct {
	name string
	// rounds is how often it is repeated; the table shows the median. Zero means once.
	rounds int
	// onBare says that a server that does nothing can be measured too.
	onBare bool
	// writes says that every request has to be on the disk before it is answered.
	writes bool
	// run loads a server that was just started and has no other clients.
	run func(ctx context.Context, s *server, z size) ([]figure, error)
}

// A figure is one number that a scenario found.
type figure struct {
	name  string // within the scenario; empty if it is the only one
	unit  string
	value float64
	goal  string // the value to reach; may be empty
}

// size says how much load there is.
type size struct {
	warm, span time.Duration // of a rate
	rounds     int           // of a rate

	waves, perWave int // of single expiries
	together       int // leases with one deadline
	togetherTTL    time.Duration
	togetherMany   int // more leases with one deadline; may be zero
	manyTTL        time.Duration
	expiring       int // leases that end while puts are measured
	expiringTTL    time.Duration
	held, heldMany int           // leases whose memory is measured
	kept           int           // leases that a server is started with
	present        []int         // how many leases are there when renewals are measured; rising
	settle         time.Duration // the pause between a load and the measurement of its effects

	batched    int // leases that are renewed with many ids in a message
	backend    int // leases that are renewed by each call of the client
	idleTTL    time.Duration
	idleTurns  int // thirds of it for which idle clients are measured
	idleMany   int // idle clients
	idleEach   int // names that each of them holds
	idleOne    int // names that one idle client holds
	clientHeld int // names whose memory in the client is measured

	runs     int // of the command, under one name
	starts   int // of each program whose start is measured
	kills    int // of the leader of a cluster
	restarts int // of all members of a cluster, one after the other or at once
	dying    dying
	watchers int // of one key
	streamed int // leases whose state a member receives while puts are measured
	cutLog   int // log entries after which no target keeps those that the member lacks
}

var (
	fullSize = size{
		warm: time.Second, span: 4 * time.Second, rounds: 3,
		waves: 10, perWave: 20,
		together: 20_000, togetherTTL: 30 * time.Second,
		togetherMany: 200_000, manyTTL: 150 * time.Second,
		expiring: 100_000, expiringTTL: 90 * time.Second,
		held: 100_000, heldMany: 300_000, kept: 1_000_000, present: []int{1_000, 100_000, 1_000_000},
		settle: 5 * time.Second,

		batched: 100_000, backend: 10_000,
		idleTTL: 15 * time.Second, idleTurns: 6, idleMany: 200, idleEach: 500, idleOne: 10_000, clientHeld: 20_000,

		runs: 100, starts: 300, restarts: 20, watchers: 512, streamed: 1_000_000, cutLog: 25_000,
		kills: 100, dying: dying{leases: 8, ttl: 5 * time.Second, first: 100 * time.Millisecond, last: 1500 * time.Millisecond},
	}
	quickSize = size{
		warm: 200 * time.Millisecond, span: 800 * time.Millisecond, rounds: 1,
		waves: 2, perWave: 15,
		together: 2_000, togetherTTL: 8 * time.Second,
		expiring: 2_000, expiringTTL: 8 * time.Second,
		held: 20_000, heldMany: 30_000, kept: 20_000, present: []int{1_000, 10_000},
		settle: time.Second,

		batched: 40_000, backend: 1_000,
		idleTTL: 6 * time.Second, idleTurns: 3, idleMany: 20, idleEach: 50, idleOne: 1_000, clientHeld: 2_000,

		runs: 10, starts: 10, restarts: 2, watchers: 64, streamed: 20_000, cutLog: 25_000,
		kills: 3, dying: dying{leases: 4, ttl: 5 * time.Second, first: 100 * time.Millisecond, last: 1500 * time.Millisecond},
	}
)

func scenarios(z size) []scenario {
	of := func(format string, n int) string { return fmt.Sprintf(format, thousands(float64(n))) }
	const together = "%s leases with one deadline"
	list := []scenario{
		{name: "lateness of single expiries", run: singleExpiries},
		{name: of(together, z.together), run: commonDeadline(z.together, z.togetherTTL, "500")},
	}
	if z.togetherMany > 0 {
		list = append(list, scenario{name: of(together, z.togetherMany), run: commonDeadline(z.togetherMany, z.manyTTL, "")})
	}
	list = append(list,
		scenario{name: of("puts, 1 000 a second, while %s leases expire", z.expiring), run: putsWhileExpiring},
		scenario{name: "grants at 64 in flight", rounds: z.rounds, onBare: true, writes: true, run: grants(64, "")},
		scenario{name: "grants at 512 in flight", rounds: z.rounds, onBare: true, writes: true, run: grants(512, "24 000")},
		scenario{name: "renewals, ping-pong on 64 streams", rounds: z.rounds, onBare: true, run: renewalsPingPong},
		scenario{name: "renewals, pipelined on 8 streams", rounds: z.rounds, onBare: true, run: renewalsPipelined},
		scenario{name: "renewals, pipelined, by how many leases are there", run: renewalsByNumber},
		scenario{name: "puts at 1 in flight", rounds: z.rounds, onBare: true, writes: true, run: puts(1, "")},
		scenario{name: "puts at 64 in flight", rounds: z.rounds, onBare: true, writes: true, run: puts(64, "18 000")},
		scenario{name: "puts at 512 in flight", rounds: z.rounds, onBare: true, writes: true, run: puts(512, "24 000")},
		scenario{name: "linearizable gets at 1 in flight", rounds: z.rounds, onBare: true, run: gets(1, "")},
		scenario{name: "linearizable gets at 64 in flight", rounds: z.rounds, onBare: true, run: gets(64, "26 000")},
		scenario{name: "linearizable gets at 512 in flight", rounds: z.rounds, onBare: true, run: gets(512, "")},
		scenario{name: "lock and unlock a Mutex, 64 in flight, each its own", rounds: z.rounds, run: lockUnlock(openSessions, 64, "")},
		scenario{name: "hand-over of a Mutex between 2", rounds: z.rounds, run: handOver(openSessions, 2, 2, "2")},
		scenario{name: "hand-over of a Mutex among 32", rounds: z.rounds, run: handOver(openSessions, 32, rateConnections, "2")},
		scenario{name: of("watch fan-out to %s watchers", z.watchers), rounds: z.rounds, run: watchFanOut(z.watchers)},
		scenario{name: of("memory of %s bare leases", z.held), run: memory(z.held, grantBare, "250")},
		scenario{name: of("memory of %s bare leases", z.heldMany), run: memory(z.heldMany, grantBare, "250")},
		scenario{name: of("memory of %s leases with a key each", z.heldMany), run: memory(z.heldMany, grantWithKey, "")},
		scenario{name: of("start-up with %s leases", z.kept), run: startUp},
	)
	return append(list, nameScenarios(z)...)
}
