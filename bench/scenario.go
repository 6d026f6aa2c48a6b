package main

import (
	"context"
	"time"
)

// A scenario is a load on one server and what is measured of it.
type scenario struct {
	name string
	// rounds is how often it is repeated; the table shows the median. Zero means once.
	rounds int
	// onBare says that a server that does nothing can be measured too.
	onBare bool
	// run loads a server that was just started and serves nobody else.
	run func(ctx context.Context, s *server, z size) ([]figure, error)
}

// A figure is one number that a scenario found.
type figure struct {
	name  string // within the scenario; empty if it is the only one
	unit  string
	value float64
	goal  string // what is to be reached; may be empty
}

// size says how much load there is.
type size struct {
	warm, span time.Duration // of a rate
	rounds     int           // of a rate

	waves, perWave int // of single expiries
	together       int // leases with one deadline
	togetherTTL    time.Duration
	held           int // leases whose memory is measured
	settle         time.Duration
}

var (
	fullSize = size{
		warm: time.Second, span: 4 * time.Second, rounds: 3,
		waves: 10, perWave: 20,
		together: 20_000, togetherTTL: 30 * time.Second,
		held: 100_000, settle: 5 * time.Second,
	}
	quickSize = size{
		warm: 200 * time.Millisecond, span: 800 * time.Millisecond, rounds: 1,
		waves: 2, perWave: 15,
		together: 2_000, togetherTTL: 8 * time.Second,
		held: 20_000, settle: time.Second,
	}
)

func scenarios(z size) []scenario {
	return []scenario{
		{name: "lateness of single expiries", run: singleExpiries},
		{name: thousands(float64(z.together)) + " leases with one deadline", run: commonDeadline},
		{name: "grants at 64 in flight", rounds: z.rounds, onBare: true, run: grants(64, "")},
		{name: "grants at 512 in flight", rounds: z.rounds, onBare: true, run: grants(512, "24 000")},
		{name: "renewals, ping-pong on 64 streams", rounds: z.rounds, onBare: true, run: renewalsPingPong},
		{name: "renewals, pipelined on 8 streams", rounds: z.rounds, onBare: true, run: renewalsPipelined},
		{name: "puts at 64 in flight", rounds: z.rounds, onBare: true, run: puts(64, "18 000")},
		{name: "puts at 512 in flight", rounds: z.rounds, onBare: true, run: puts(512, "24 000")},
		{name: "linearizable gets at 64 in flight", rounds: z.rounds, onBare: true, run: gets(64, "26 000")},
		{name: "memory of " + thousands(float64(z.held)) + " bare leases", run: memory},
	}
}
