package otellease

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasekeeper/leasekeeper"
)

// The names of the events.
const (
	eventDoubt    = "lease in doubt"
	eventRecovery = "lease renewed again"
	eventEarly    = "tenure ends early"
	eventLost     = "lease lost"
)

// Hook adds events to the spans of the leases that reports are about. It is a [leasekeeper.Hook], for
// [leasekeeper.WithHook].
func (t *Tracer) Hook(r leasekeeper.Report) {
	switch r := r.(type) {
	case leasekeeper.Doubted:
		t.watched.of(r.Subject).doubted(r.Left, r.Err)
	case leasekeeper.Assured:
		t.watched.of(r.Subject).recovered()
	case leasekeeper.EndedEarly:
		t.watched.of(r.Subject).endsEarly(r.Why)
	case leasekeeper.Lost:
		t.watched.take(r.Subject).lost(r.Why)
	case leasekeeper.Released:
		t.watched.take(r.Subject)
	}
}

// events are the events of one lease on their way to a span. A nil *events takes and drops them.
type events struct {
	span  trace.Span
	lease *leasekeeper.Lease

	mu                sync.Mutex
	isLost, isRetired bool // each of these happens once
}

func (e *events) doubted(left time.Duration, err error) {
	if e == nil {
		return
	}
	about := []attribute.KeyValue{keyLeft.Float64(left.Seconds())}
	if err != nil {
		about = append(about, keyReason.String(err.Error()))
	}
	e.span.AddEvent(eventDoubt, trace.WithAttributes(about...))
}

func (e *events) recovered() {
	if e != nil {
		e.span.AddEvent(eventRecovery)
	}
}

func (e *events) endsEarly(why error) {
	if e != nil {
		e.once(&e.isRetired, eventEarly, why)
	}
}

func (e *events) lost(why error) {
	if e != nil {
		e.once(&e.isLost, eventLost, why)
	}
}

// once adds an event, unless its mark is set already: the hook and the end of the function may both report it.
func (e *events) once(mark *bool, event string, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !*mark {
		*mark = true
		e.span.AddEvent(event, trace.WithAttributes(keyReason.String(why.Error())))
	}
}

// leastSweep is the number of leases below which watched looks for no ended ones.
const leastSweep = 64

// watched are the leases whose events are awaited. Reports may be left out, and a keeper may have no hook. So whenever their
// number has doubled, watched removes the leases that have ended.
type watched struct {
	mu      sync.Mutex
	leases  map[leasekeeper.Subject]*events
	sweepAt int
}

// add watches a lease until a report says that it has ended, or until remove.
func (w *watched) add(lease *leasekeeper.Lease, span trace.Span) *events {
	e := &events{span: span, lease: lease}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases == nil {
		w.leases, w.sweepAt = make(map[leasekeeper.Subject]*events), leastSweep
	}
	if len(w.leases) >= w.sweepAt {
		for subject, other := range w.leases {
			if other.lease.Check() != nil {
				delete(w.leases, subject)
			}
		}
		w.sweepAt = max(leastSweep, 2*len(w.leases))
	}
	w.leases[subjectOf(lease)] = e
	return e
}

// remove ends the watch that add began, unless another add has replaced it.
func (w *watched) remove(lease *leasekeeper.Lease, e *events) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if subject := subjectOf(lease); w.leases[subject] == e {
		delete(w.leases, subject)
	}
}

// of returns the events of a lease, or nil if the lease is not watched.
func (w *watched) of(subject leasekeeper.Subject) *events {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[subject]
}

// take returns the events of a lease that has ended, and ends the watch.
func (w *watched) take(subject leasekeeper.Subject) *events {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.leases[subject]
	delete(w.leases, subject)
	return e
}

func subjectOf(lease *leasekeeper.Lease) leasekeeper.Subject {
	return leasekeeper.Subject{Name: lease.Name(), Token: lease.Token()}
}
