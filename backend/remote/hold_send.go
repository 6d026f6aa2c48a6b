package remote

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// maxDemands bounds one message, by the rules of the service.
	maxDemands = 1024
	// maxDemandBytes is from when on a message is full: a server may take no more than half a mebibyte.
	maxDemandBytes = 256 << 10
	// demandBytes is more than a demand takes beside its texts.
	demandBytes = 128
)

// outbox makes messages of demands. It belongs to the sending side of one stream, which uses all of it again.
type outbox struct {
	demands  []*demand
	request  leasekeeperv1.HoldRequest
	claims   []*leasekeeperv1.HoldClaim
	releases []*leasekeeperv1.HoldRelease
	holder   backend.Holder // whom the server takes for the one who claims, if nothing else is said
	known    bool           // it does
}

func (s *holdStream) run() {
	stream, err := s.home.endpoint.names.Hold(s.ctx, withHoldCodec())
	if err != nil {
		s.end(because(s.ctx, err))
		return
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		var resp leasekeeperv1.HoldResponse
		for {
			err := stream.RecvMsg(&resp)
			if errors.Is(err, io.EOF) {
				err = errEndedStream
			}
			if err != nil {
				s.end(because(s.ctx, err))
				return
			}
			s.answered(resp.Answers)
		}
	})
	var box outbox
	for s.next(&box) {
		if err := stream.Send(&box.request); err != nil {
			s.unsend(box.demands)
			if !errors.Is(err, io.EOF) {
				s.end(because(s.ctx, err))
			}
			break // otherwise receiving says why
		}
	}
	reading.Wait()
}

// next waits for something to be sent, and makes a message of it. It returns false when the stream has ended.
func (s *holdStream) next(box *outbox) bool {
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return false
		}
		// The answers that woke one caller woke others too. They add their requests while this goroutine yields, so one message
		// carries them all. Without this a claim and its release take 40 % longer with 64 callers, and 48 % with 512
		// (BenchmarkClaimReleaseOfMany).
		runtime.Gosched()
		if s.fill(box) {
			return true
		}
	}
}

// fill makes a message of what waits to be sent, as far as one goes.
func (s *holdStream) fill(box *outbox) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < min(len(s.unsent), maxDemands) && (n == 0 || size < maxDemandBytes) {
		d := s.unsent[n]
		size += demandBytes + len(d.name) + len(d.holder.ID) + len(d.holder.Card.Host) + len(d.holder.Card.Text)
		n++
	}
	box.demands = append(box.demands[:0], s.unsent[:n]...)
	s.unsent = append(s.unsent[:0], s.unsent[n:]...)
	clear(s.unsent[len(s.unsent):cap(s.unsent)][:n])
	if len(s.unsent) > 0 {
		s.ring()
	}
	box.request.Forget = append(box.request.Forget[:0], s.forget...)
	s.forget = s.forget[:0]
	box.request.Holder, box.request.Releases, box.request.Claims = nil, box.request.Releases[:0], box.request.Claims[:0]
	for _, d := range box.demands {
		if d.ttlMs == 0 {
			s.number(d)
			box.release(d)
		}
	}
	for _, d := range box.demands {
		if d.ttlMs != 0 {
			s.number(d)
			box.claim(d)
		}
	}
	return n > 0 || len(box.request.Forget) > 0
}

// number gives a demand its number: it is about to be sent.
func (s *holdStream) number(d *demand) {
	s.last++
	d.number, d.sent = s.last, true
	s.asked[d.number] = d
}

// unsend says that a message did not leave.
func (s *holdStream) unsend(demands []*demand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range demands {
		if s.asked[d.number] == d {
			d.sent = false
		}
	}
}

func (b *outbox) release(d *demand) {
	n := len(b.request.Releases)
	if n == len(b.releases) {
		b.releases = append(b.releases, new(leasekeeperv1.HoldRelease))
	}
	r := b.releases[n]
	r.Number, r.Name, r.Lease = d.number, d.name, d.lease
	b.request.Releases = append(b.request.Releases, r)
}

func (b *outbox) claim(d *demand) {
	n := len(b.request.Claims)
	if n == len(b.claims) {
		b.claims = append(b.claims, new(leasekeeperv1.HoldClaim))
	}
	c := b.claims[n]
	c.Number, c.Name, c.Lease, c.TtlMs, c.Wait, c.Holder = d.number, d.name, d.lease, d.ttlMs, d.wait, nil
	switch {
	case b.known && d.holder == b.holder:
	case n == 0: // the first of a message speaks for those that follow
		b.request.Holder = wireHolder(d.holder)
		b.holder, b.known = d.holder, true
	default:
		c.Holder = wireHolder(d.holder)
	}
	b.request.Claims = append(b.request.Claims, c)
}
