package demo

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
)

// logLine is a line of the resource: one accepted write.
type logLine struct {
	Token   leasekeeper.Token
	Holder  string
	Process int // the id of the process that wrote
	Write   int // the number of the write by that process
}

// String returns the line as it stands in the file.
func (l logLine) String() string {
	return fmt.Sprintf("%d %s %d %d", l.Token, l.Holder, l.Process, l.Write)
}

// parseLog parses the content of the resource.
func parseLog(text []byte) (lines []logLine, err error) {
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		var l logLine
		if _, err := fmt.Sscan(scan.Text(), &l.Token, &l.Holder, &l.Process, &l.Write); err != nil {
			return nil, fmt.Errorf("the file has the line %q: %w", scan.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// fact is a statement about the whole run, and whether it holds.
type fact struct {
	name  string
	value string
	holds bool
}

// judge returns the facts about a finished record and the content of the resource. paused says whether the scenario paused
// a holder, so that the resource had to refuse a write.
func judge(tenures []*tenure, writes []write, log []logLine, paused bool) []fact {
	ordered := slices.Clone(tenures)
	slices.SortStableFunc(ordered, func(a, b *tenure) int { return cmp.Compare(a.from.Raw, b.from.Raw) })
	return []fact{
		tokensGrow(ordered),
		neverTwo(ordered),
		writesInTenures(ordered, writes),
		logKeepsOrder(writes, log),
		refusals(writes, log, paused),
		longestGap(ordered),
	}
}

// tokensGrow states that each tenure has a higher token than all before it.
func tokensGrow(ordered []*tenure) fact {
	f := fact{name: "tokens strictly increase", holds: len(ordered) > 1}
	for i, t := range ordered {
		if i > 0 {
			f.value += " < "
			f.holds = f.holds && ordered[i-1].token < t.token
		}
		f.value += t.token.String()
	}
	return f
}

// neverTwo states that each tenure began after the right to act of all earlier holders had ended.
func neverTwo(ordered []*tenure) fact {
	f := fact{name: "two holders at once", holds: true}
	closest := time.Duration(math.MaxInt64)
	for i, t := range ordered {
		for _, before := range ordered[:i] {
			closest = min(closest, t.from.Elapsed(before.over))
			if t.from.Before(before.over) {
				f.holds = false
				f.value = fmt.Sprintf("tokens %d and %d, for %v", before.token, t.token, before.over.Elapsed(t.from).Round(time.Millisecond))
			}
		}
	}
	if f.holds {
		f.value = fmt.Sprintf("never; the nearest two were %.3f s apart", closest.Seconds())
	}
	return f
}

// writesInTenures states that the check before each accepted write was in the tenure of its token.
func writesInTenures(ordered []*tenure, writes []write) fact {
	f := fact{name: "accepted writes", holds: true}
	n := 0
	for _, w := range writes {
		if !w.accepted {
			continue
		}
		n++
		i := slices.IndexFunc(ordered, func(t *tenure) bool { return t.token == w.line.Token })
		if i < 0 || w.at.Before(ordered[i].from) || ordered[i].over.Before(w.at) {
			f.holds = false
			f.value = fmt.Sprintf("write %d with token %d was checked outside its tenure", w.line.Write, w.line.Token)
		}
	}
	if f.holds {
		f.value, f.holds = fmt.Sprintf("%d, each checked in the tenure of its token", n), n > 0
	}
	return f
}

// logKeepsOrder states that tokens never decrease in the resource, and that no accepted write is missing there.
func logKeepsOrder(writes []write, log []logLine) fact {
	f := fact{name: "lines in the file", value: fmt.Sprintf("%d, in the order of their tokens, none lost", len(log)), holds: len(log) > 0}
	for i, l := range log {
		if i > 0 && l.Token < log[i-1].Token {
			f.value, f.holds = fmt.Sprintf("token %d comes after %d", l.Token, log[i-1].Token), false
		}
	}
	for _, w := range writes {
		if w.accepted && !slices.Contains(log, w.line) {
			f.value, f.holds = fmt.Sprintf("write %d with token %d was accepted and is lost", w.line.Write, w.line.Token), false
		}
	}
	return f
}

// refusals states which writes the resource refused, and that they are not in the resource.
func refusals(writes []write, log []logLine, paused bool) fact {
	f := fact{name: "refused writes", holds: true}
	n := 0
	for _, w := range writes {
		if w.accepted {
			continue
		}
		n++
		if f.holds {
			f.value = fmt.Sprintf("%d: %s wrote with token %d after token %d", n, w.line.Holder, w.line.Token, w.highest)
		}
		if w.highest <= w.line.Token || slices.Contains(log, w.line) {
			f.value, f.holds = fmt.Sprintf("the write with token %d was refused without reason, or is in the file", w.line.Token), false
		}
	}
	switch {
	case n == 0 && paused:
		f.value, f.holds = "none, but the paused worker wrote with an old token", false
	case n == 0:
		f.value = "none: no worker was paused"
	}
	return f
}

// longestGap states the longest time in which no worker worked under the name, between the first tenure and the last.
func longestGap(ordered []*tenure) fact {
	f := fact{name: "longest time without a holder", holds: true}
	var longest time.Duration
	var stopped clock.Instant
	for i, t := range ordered {
		if i > 0 {
			longest = max(longest, t.from.Elapsed(stopped))
		}
		stopped = stopped.Later(t.stopped)
	}
	f.value = fmt.Sprintf("%.3f s (the TTL is %v)", longest.Seconds(), leaseTTL)
	return f
}
