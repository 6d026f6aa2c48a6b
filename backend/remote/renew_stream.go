package remote

import (
	"context"
	"sync"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// renewMessage asks for the renewal of leases.
type renewMessage struct {
	round  *round
	first  int   // the index of its first lease in the leases of the round
	places []int // those indexes, if they are not consecutive; else nil
	count  int
	ids    []int64 // until it is sent

	// The stream's lock guards the rest.
	stream *renewStream // nil if the backend was closed before a stream took it
	number uint64       // 0 until it is about to be sent
	since  moment       // when the stream took it
	open   int          // how many of its leases are not answered
	void   bool         // the round has ended
}

// roundIndex returns the index of the message's i-th lease in the leases of the round.
func (m *renewMessage) roundIndex(i int) int {
	if m.places != nil {
		return m.places[i]
	}
	return m.first + i
}

// renewStream is the protocol of renewals.
type renewStream struct {
	*muxStream[*renewMessage]
	endpoint *endpoint
	stream   leasekeeperv1.Leasekeeper_RenewClient // once it is open
	next     *renewMessage                         // the message to send; only the sending goroutine uses it
	request  leasekeeperv1.RenewRequest            // only the sending goroutine uses it
	response *leasekeeperv1.RenewResponse          // only the reading goroutine uses it
}

// open implements [protocol].
func (s *renewStream) open(ctx context.Context) (err error) {
	s.stream, err = s.endpoint.names.Renew(ctx)
	return err
}

// admit implements [protocol].
func (s *renewStream) admit(m *renewMessage) { m.stream, m.since, m.open = s, now(), m.count }

// fill implements [protocol].
func (s *renewStream) fill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.unsent) > 0 {
		m := s.unsent[0]
		s.unsent = s.unsent[1:]
		if m.void {
			freeIDs(m.ids)
			continue
		}
		m.number = s.number(m)
		s.next = m
		if len(s.unsent) > 0 {
			s.wakeSender()
		}
		return true
	}
	return false
}

// send implements [protocol].
func (s *renewStream) send() error {
	m := s.next
	s.next = nil
	s.request.Number, s.request.Leases = m.number, m.ids
	err := s.stream.Send(&s.request)
	freeIDs(m.ids) // Send has encoded them
	return err
}

// receive implements [protocol].
func (s *renewStream) receive() (err error) {
	s.response, err = s.stream.Recv()
	return err
}

// answer implements [protocol].
func (s *renewStream) answer() {
	resp := s.response
	m := s.asked[resp.Number]
	if m == nil {
		return // the round has ended
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

// lost implements [protocol].
func (s *renewStream) lost(err error) error { return err }

// fail implements [protocol].
func (s *renewStream) fail(m *renewMessage, err error) {
	if m.number == 0 {
		freeIDs(m.ids)
	}
	m.round.inbox.put(news{message: m, err: err, last: true})
}

// forget drops the answers that may still come to a message whose round has ended. It ends a stream that has been silent
// since the message.
func (m *renewMessage) forget() {
	s := m.stream
	if s == nil {
		return
	}
	s.mu.Lock()
	m.void = true
	silent := m.open > 0 && !s.ended && s.silent(m.since, now())
	delete(s.asked, m.number)
	s.mu.Unlock()
	if silent {
		s.abandon()
	}
}

// freeIDSlices has slices of ids for reuse.
var freeIDSlices sync.Pool

func newIDs(n int) []int64 {
	if ids, ok := freeIDSlices.Get().(*[]int64); ok && cap(*ids) >= n {
		return (*ids)[:n]
	}
	return make([]int64, n)
}

func freeIDs(ids []int64) { freeIDSlices.Put(&ids) }
