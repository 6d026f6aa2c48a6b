package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

const (
	// maxIDs is how many leases one message may name. The server refuses more.
	maxIDs = 1 << 14
	// renewAttempts is the least number of attempts before a call of Renew gives up.
	renewAttempts = 8
)

// round is one call of Renew. Only the goroutine of the caller uses it, except for the inbox.
type round struct {
	b          *Backend
	renewal    *endpoints.Renewal
	leases     []backend.Lease
	report     func(int, backend.Renewal)
	done       []bool // by lease: it is reported
	open       int    // how many leases are not reported
	sent       []*renewMessage
	live       int   // how many of these may still be answered
	retryLater bool  // the server could not renew a lease now
	trouble    error // why a message was not answered
	inbox      inbox
}

// inbox receives answers from the streams.
type inbox struct {
	wake chan struct{} // signals news; holds one signal
	mu   sync.Mutex
	news []news
}

// news is an answer to a message, or the error because of which no answer comes.
type news struct {
	message *renewMessage
	resp    *leasekeeperv1.RenewResponse
	err     error
	last    bool // the message receives nothing more
}

func (i *inbox) put(n news) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.news = append(i.news, n)
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *inbox) take() []news {
	i.mu.Lock()
	defer i.mu.Unlock()
	taken := i.news
	i.news = nil
	return taken
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	r := b.newRound(leases, report)
	for i, l := range leases {
		if own, ok := l.(*lease); !ok || own == nil || own.b != b || own.token() == 0 {
			_, err := endpoints.Known[*lease](b, l)
			r.deliver(i, backend.Renewal{Err: err})
		}
	}
	return r.run(ctx)
}

func (r *round) run(ctx context.Context) error {
	defer r.forget()
	var end func()
	r.renewal, end = r.b.endpoints.BeginRenewal(ctx, r.leases)
	defer end()
	attempts := r.b.endpoints.Attempts(renewAttempts)
	stalls := 0
	var last []int64 // the endpoint of the last attempt
	for n := 0; r.open > 0; n++ {
		w, number := r.b.endpoints.Take(r.renewal, last...)
		last = []int64{number}
		stall := endpoints.Stall(ctx, stalls)
		if n == attempts-1 {
			stall = max(endpoints.Stall(context.Background(), stalls), r.b.endpoints.Patience())
		}
		r.ask(w)
		err := r.listen(ctx, stall)
		if errors.Is(err, endpoints.ErrStalled) {
			stalls++
		}
		if err != nil || r.retryLater {
			r.b.endpoints.Leave(number)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return r.unknown(context.Cause(ctx))
		case n+1 >= attempts:
			return r.unknown(store.Outcome(err).Read("renewing leases"))
		case !errors.Is(err, endpoints.ErrStalled) && !r.b.endpoints.Pause(ctx, n+1):
			return r.unknown(context.Cause(ctx))
		}
	}
	return nil
}

func (r *round) unknown(err error) error {
	return fmt.Errorf("the outcome of %d of %d renewals is unknown: %w", r.open, len(r.leases), err)
}

// ask sends messages for all leases that are not reported.
func (r *round) ask(w *endpoint) {
	if r.open == len(r.leases) {
		for first := 0; first < len(r.leases); first += maxIDs {
			r.send(w, &renewMessage{first: first, count: min(maxIDs, len(r.leases)-first)})
		}
		return
	}
	var places []int
	left := r.open
	for i, done := range r.done {
		if done {
			continue
		}
		if places == nil {
			places = make([]int, 0, min(maxIDs, left))
		}
		if places = append(places, i); len(places) == cap(places) {
			r.send(w, &renewMessage{places: places, count: len(places)})
			left -= len(places)
			places = nil
		}
	}
}

func (r *round) send(w *endpoint, m *renewMessage) {
	m.round, m.ids = r, newIDs(m.count)
	if m.places == nil {
		for i, l := range r.leases[m.first : m.first+m.count] {
			m.ids[i] = l.(*lease).id
		}
	} else {
		for i, place := range m.places {
			m.ids[i] = r.leases[place].(*lease).id
		}
	}
	r.sent = append(r.sent, m)
	r.live++
	if err := w.renewals.put(m); err != nil {
		freeIDs(m.ids)
		r.inbox.put(news{message: m, err: err, last: true})
	}
}

// listen takes answers until all leases are reported, no answer has come for the time stall, or none will come.
func (r *round) listen(ctx context.Context, stall time.Duration) error {
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for {
		brought := r.inbox.take()
		for _, n := range brought {
			if n.last {
				r.live--
			}
			if n.err != nil {
				r.trouble = n.err
				continue
			}
			r.take(n.message, n.resp)
			timer.Reset(stall)
		}
		switch {
		case r.open == 0:
			return nil
		case r.live == 0:
			return cmp.Or(r.trouble, errNonsense)
		case len(brought) > 0:
			continue
		}
		select {
		case <-r.inbox.wake:
		case <-timer.C:
			return endpoints.ErrStalled
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take reports the leases in an answer.
func (r *round) take(m *renewMessage, resp *leasekeeperv1.RenewResponse) {
	if !m.within(resp) {
		return // the answer does not fit the message
	}
	for _, refused := range resp.Refused {
		r.refuse(m.roundIndex(int(refused.Place)), refused)
	}
	switch {
	case resp.Late:
		for _, place := range resp.Places {
			r.renewed(m.roundIndex(int(place)))
		}
	case len(resp.Refused)+len(resp.Pending) == 0:
		for i := range m.count {
			r.renewed(m.roundIndex(i))
		}
	default:
		not := make([]bool, m.count)
		for _, refused := range resp.Refused {
			not[refused.Place] = true
		}
		for _, place := range resp.Pending {
			not[place] = true
		}
		for i := range m.count {
			if !not[i] {
				r.renewed(m.roundIndex(i))
			}
		}
	}
}

// within reports whether all places of an answer are places of the message.
func (m *renewMessage) within(resp *leasekeeperv1.RenewResponse) bool {
	for _, places := range [][]uint32{resp.Pending, resp.Places} {
		for _, place := range places {
			if int64(place) >= int64(m.count) {
				return false
			}
		}
	}
	for _, refused := range resp.Refused {
		if int64(refused.Place) >= int64(m.count) {
			return false
		}
	}
	return true
}

func (r *round) renewed(i int) {
	if !r.done[i] {
		r.deliver(i, backend.Renewal{TTL: r.leases[i].(*lease).ttl})
	}
}

// refuse reports that a lease was not renewed, unless the answer to another message of the round came first.
func (r *round) refuse(i int, refused *leasekeeperv1.RefusedRenewal) {
	if r.done[i] {
		return
	}
	l := r.leases[i].(*lease)
	switch refused.State {
	case leasekeeperv1.RefusedRenewal_GONE, leasekeeperv1.RefusedRenewal_REVOKED:
		why := string(reasons[refused.Why])
		if why == "" {
			why = "its lease is gone from the server"
		}
		if refused.Note != "" {
			why += ": " + backend.Printable(refused.Note)
		}
		r.deliver(i, backend.Renewal{Err: fmt.Errorf("%w: %s: %s", backend.ErrLost, l.Name(), why)})
	case leasekeeperv1.RefusedRenewal_DENIED:
		r.deliver(i, backend.Renewal{Err: fmt.Errorf("%w: %s: %w: the right to hold it was withdrawn, or the user was removed", backend.ErrLost, l.Name(), backend.ErrDenied)})
	default:
		r.retryLater = true
		r.deliver(i, backend.Renewal{Err: fmt.Errorf("%w: the server could not renew %s now", backend.ErrUnavailable, l.Name())})
	}
}

// deliver reports one lease.
func (r *round) deliver(i int, what backend.Renewal) {
	r.done[i] = true
	r.open--
	r.report(i, what)
}

// forget drops the answers that may still come.
func (r *round) forget() {
	for _, m := range r.sent {
		m.forget()
	}
}

func (b *Backend) newRound(leases []backend.Lease, report func(int, backend.Renewal)) *round {
	return &round{
		b: b, leases: leases, report: report, done: make([]bool, len(leases)), open: len(leases),
		inbox: inbox{wake: make(chan struct{}, 1)},
	}
}

// renewOne renews one lease. It returns the error if that fails.
func (b *Backend) renewOne(ctx context.Context, l *lease) error {
	var refused error
	if err := b.newRound([]backend.Lease{l}, func(_ int, n backend.Renewal) { refused = n.Err }).run(ctx); err != nil {
		return err
	}
	return refused
}
