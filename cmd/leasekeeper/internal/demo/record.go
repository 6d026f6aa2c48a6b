package demo

import (
	"sync"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
)

// tenure is what the demo knows about one tenure of the name.
type tenure struct {
	token   leasekeeper.Token
	holder  string
	from    clock.Instant // when the worker had acquired the name
	until   clock.Instant // the latest deadline that the worker has reported
	stopped clock.Instant // when the worker stopped working: it ended, or the demo killed or paused it; zero if it works
	over    clock.Instant // the end of the right to act, by the clocks that the worker reads too; zero if it lasts
	writes  int           // number of accepted writes
	how     string        // how it ended, for people
}

// end ends the tenure. at is when the worker stopped, and over when its right to act ended.
func (t *tenure) end(at, over clock.Instant, how string) {
	if t.stopped == (clock.Instant{}) {
		t.stopped, t.how = at, how
	}
	if t.over == (clock.Instant{}) {
		t.over = over
	}
}

// write is a write that a worker reported.
type write struct {
	line     logLine
	at       clock.Instant // when the worker checked its lease before it
	accepted bool
	highest  leasekeeper.Token // the token because of which the resource refused it
}

// record is what all workers have reported, and what the scenario has done to them. It is safe for concurrent use.
type record struct {
	mu      sync.Mutex
	changed chan struct{}     // closed and replaced at each change
	tenures []*tenure         // in the order of their reports
	writes  []write           // of all workers
	last    map[string]report // the last report of each worker, other than of writes that the resource accepted
	closed  bool              // whether tenures and writes are no longer recorded
}

func newRecord() *record {
	return &record{changed: make(chan struct{}), last: make(map[string]report)}
}

// change calls f with the record locked, and wakes all that wait for a change.
func (r *record) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// look calls f with the record locked. It returns a channel that is closed at the next change.
func (r *record) look(f func()) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	return r.changed
}

// add records a report of a worker's process.
func (r *record) add(worker string, process int, p report) {
	r.change(func() {
		if p.Kind != reportWrote {
			r.last[worker] = p
		}
		if r.closed {
			return
		}
		if p.Kind == reportHolds {
			r.tenures = append(r.tenures, &tenure{token: p.Token, holder: worker, from: p.At})
		}
		t := r.tenure(p.Token)
		if t == nil {
			return
		}
		t.until = t.until.Later(p.Until)
		line := logLine{Token: p.Token, Holder: worker, Process: process, Write: p.Write}
		switch p.Kind {
		case reportWrote:
			t.writes++
			r.writes = append(r.writes, write{line: line, at: p.Checked, accepted: true})
		case reportRefused:
			r.writes = append(r.writes, write{line: line, at: p.Checked, highest: p.Highest})
		case reportReleased:
			t.end(p.At, p.At, "released")
		case reportEnded:
			t.end(p.At, earlier(p.At, t.until), "its lease ended")
		}
	})
}

// stop records that the scenario has stopped the holder of a token. Its right to act lasts until the deadline.
func (r *record) stop(token leasekeeper.Token, at clock.Instant, how string) {
	r.change(func() {
		if t := r.tenure(token); t != nil {
			t.end(at, t.until, how)
		}
	})
}

// finish ends all tenures that last, and closes the record. No worker holds a lease that began later.
func (r *record) finish(at clock.Instant) {
	r.change(func() {
		r.closed = true
		for _, t := range r.tenures {
			t.end(at, at, "lasts")
		}
	})
}

// tenure returns the tenure of a token, nil for none. The record is locked.
func (r *record) tenure(token leasekeeper.Token) *tenure {
	for _, t := range r.tenures {
		if t.token == token {
			return t
		}
	}
	return nil
}

// current returns the newest tenure, if the worker of it still works; else nil. The record is locked.
func (r *record) current() *tenure {
	if len(r.tenures) == 0 {
		return nil
	}
	if t := r.tenures[len(r.tenures)-1]; t.stopped == (clock.Instant{}) {
		return t
	}
	return nil
}

// earlier returns a, or b if b is before a.
func earlier(a, b clock.Instant) clock.Instant {
	if b.Before(a) {
		return b
	}
	return a
}
