package remote

import (
	"context"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// renewals has the stream of renewals of one endpoint.
type renewals struct {
	b        *Backend
	endpoint *endpoint

	mu      sync.Mutex
	present *renewStream // nil if there is none
}

// send sends a message over the stream that there is, or a new one.
func (r *renewals) send(m *message) {
	for {
		r.mu.Lock()
		if r.present == nil {
			r.present = r.open()
		}
		s := r.present
		r.mu.Unlock()
		if s == nil {
			freeIDs(m.ids)
			m.round.inbox.put(news{message: m, err: r.b.endpoints.Closed, last: true})
			return
		}
		if s.take(m) {
			return
		}
		r.drop(s)
	}
}

// drop has the next message open another stream than s.
func (r *renewals) drop(s *renewStream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.present == s {
		r.present = nil
	}
}

// open returns nil if the backend is closed.
func (r *renewals) open() *renewStream {
	s := &renewStream{home: r, asked: make(map[uint64]*message), wake: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(r.b.endpoints.Base)
	if !r.b.endpoints.Spawn(s.run) {
		s.cancel(r.b.endpoints.Closed)
		return nil
	}
	return s
}

// renewStream is one stream. A goroutine sends what there is to send, another brings the answers to those who
// wait for them.
type renewStream struct {
	home   *renewals
	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{} // tells that there is something to send; holds one

	mu     sync.Mutex
	last   uint64              // the number of the newest message
	unsent []*message          // in order
	asked  map[uint64]*message // that were sent and are not answered in full, by number
	heard  time.Time           // when the last answer came
	ended  bool                // nothing more is taken, sent or answered
}

// message is one question for the renewal of leases.
type message struct {
	round  *round
	first  int   // the place of the first lease in what the caller of Renew gave
	places []int // the places, if they are not in a row
	count  int
	ids    []int64 // until it was sent

	// Guarded by the stream's lock.
	stream *renewStream
	number uint64 // 0 until it is about to be sent
	since  time.Time
	open   int  // how many are not answered
	void   bool // nobody waits for it any more
}

// place is that of the i-th lease of the message.
func (m *message) place(i int) int {
	if m.places != nil {
		return m.places[i]
	}
	return m.first + i
}

// take has a message sent. It returns false if the stream has ended.
func (s *renewStream) take(m *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	m.stream, m.since, m.open = s, time.Now(), m.count
	s.unsent = append(s.unsent, m)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// next waits for a message to be sent and gives it its number. It returns nil when the stream has ended.
func (s *renewStream) next() *message {
	for {
		s.mu.Lock()
		for len(s.unsent) > 0 {
			m := s.unsent[0]
			s.unsent = s.unsent[1:]
			if m.void {
				freeIDs(m.ids)
				continue
			}
			s.last++
			m.number = s.last
			s.asked[m.number] = m
			s.mu.Unlock()
			return m
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return nil
		}
	}
}

func (s *renewStream) run() {
	stream, err := s.home.endpoint.names.Renew(s.ctx)
	if err != nil {
		s.end(because(s.ctx, err))
		return
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			resp, err := stream.Recv()
			if err != nil {
				s.end(because(s.ctx, err))
				return
			}
			s.answer(resp)
		}
	})
	req := new(leasekeeperv1.RenewRequest)
	for m := s.next(); m != nil; m = s.next() {
		req.Number, req.Leases = m.number, m.ids
		err := stream.Send(req)
		freeIDs(m.ids) // they are on their way as bytes
		if err != nil {
			break // receiving says why
		}
	}
	reading.Wait()
}

// answer brings an answer to the caller that waits for it.
func (s *renewStream) answer(resp *leasekeeperv1.RenewResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	m := s.asked[resp.Number]
	if m == nil {
		return // too late, or to nothing that was asked
	}
	if resp.Late {
		m.open -= len(resp.Places) + len(resp.Refused)
	} else {
		m.open = len(resp.Pending)
	}
	if m.open <= 0 {
		delete(s.asked, resp.Number)
	}
	m.round.inbox.put(news{message: m, resp: resp, last: m.open <= 0})
}

// end gives up the stream, for all who wait.
func (s *renewStream) end(err error) {
	s.cancel(err)
	s.home.drop(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	for _, m := range s.unsent {
		freeIDs(m.ids)
		m.round.inbox.put(news{message: m, err: err, last: true})
	}
	for _, m := range s.asked { // order: each goes to its own place
		m.round.inbox.put(news{message: m, err: err, last: true})
	}
	s.unsent, s.asked = nil, nil
}

// forget is for messages whose answers nobody waits for any more. A stream that has brought nothing at all
// since, for so long, is given up.
func (m *message) forget(patience time.Duration) {
	s := m.stream
	if s == nil {
		return
	}
	s.mu.Lock()
	m.void = true
	waits := m.open > 0 && !s.ended
	silent := waits && !s.heard.After(m.since) && time.Since(m.since) >= patience
	delete(s.asked, m.number)
	s.mu.Unlock()
	if silent {
		s.cancel(errStalled)
		s.home.drop(s)
	}
}

// freed are slices that ids were sent in.
var freed sync.Pool

func newIDs(n int) []int64 {
	if ids, ok := freed.Get().(*[]int64); ok && cap(*ids) >= n {
		return (*ids)[:n]
	}
	return make([]int64, n)
}

func freeIDs(ids []int64) { freed.Put(&ids) }
