package simulation

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// traceLength is the number of kept events.
const traceLength = 200

// trace keeps the last events, and a checksum of all events.
type trace struct {
	sum   uint64
	lines [traceLength]line
	count int
}

// line is one event of a member or a client.
type line struct {
	at    int64
	actor string
	what  string
	a, b  uint64
}

func (w *world) note(actor, what string, a, b uint64) {
	t := &w.trace
	t.lines[t.count%traceLength] = line{w.now, actor, what, a, b}
	t.count++
	for _, n := range [...]uint64{uint64(w.now), hashString(actor), hashString(what), a, b} {
		t.sum = (t.sum ^ n) * 0x100000001b3
		t.sum ^= t.sum >> 29
	}
}

func (t *trace) last() []string {
	var lines []string
	for i := max(0, t.count-traceLength); i < t.count; i++ {
		l := t.lines[i%traceLength]
		lines = append(lines, fmt.Sprintf("%-14v %-4s %s %d %d", time.Duration(l.at), l.actor, l.what, l.a, l.b))
	}
	return lines
}

func hashString(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

func hashBytes(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b) // never fails
	return h.Sum64()
}

// marks counts events that a batch of runs must see. If an event is never seen, the runs do not test it.
type marks map[string]int

func (w *world) mark(what string) { w.marks[what]++ }

func (m marks) list() []string {
	var all []string
	for what := range m {
		all = append(all, what)
	}
	slices.Sort(all)
	return all
}
