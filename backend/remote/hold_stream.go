package remote

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

const (
	// maxHoldCalls bounds the claims and releases in one message. The server refuses more.
	maxHoldCalls = 1024
	// maxHoldBytes is the size from which on a message takes no more of them. The server may refuse a message above half a
	// mebibyte.
	maxHoldBytes = 256 << 10
	// holdCallBytes is more than one of them takes besides its texts.
	holdCallBytes = 128
)

// holdStream is the protocol of claims and releases.
type holdStream struct {
	*muxStream[*holdCall]
	home     *holds
	endpoint *endpoint
	stream   leasekeeperv1.Leasekeeper_HoldClient // once it is open
	outbox   holdOutbox                           // only the sending goroutine uses it
	response leasekeeperv1.HoldResponse           // only the reading goroutine uses it

	// The stream's lock guards the rest.
	forget  []uint64    // numbers of claims whose turn no caller waits for; the server has not received them yet
	alarm   *time.Timer // runs expire; nil until there was a call
	expires moment      // when the alarm goes off; noMoment if it is not set
}

// open implements [protocol].
func (s *holdStream) open(ctx context.Context) (err error) {
	s.stream, err = s.endpoint.names.Hold(ctx, withHoldCodec())
	return err
}

// admit implements [protocol].
func (s *holdStream) admit(c *holdCall) {
	c.stream, c.since = s, now()
	c.until = c.since.add(c.limit)
	s.setAlarm(c, c.since)
}

// fill implements [protocol]. The releases of a message come before its claims.
func (s *holdStream) fill() bool {
	// The answers that woke one caller woke others too. They add their requests while this goroutine yields, so one message
	// carries them all. Without this a claim and its release take 40 % longer with 64 callers, and 48 % with 512
	// (BenchmarkClaimReleaseOfMany).
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < min(len(s.unsent), maxHoldCalls) && (n == 0 || size < maxHoldBytes) {
		c := s.unsent[n]
		size += holdCallBytes + len(c.name) + len(c.holder.ID) + len(c.holder.Card.Host) + len(c.holder.Card.Text) + len(c.trace)
		n++
	}
	box := &s.outbox
	box.calls = append(box.calls[:0], s.unsent[:n]...)
	s.unsent = append(s.unsent[:0], s.unsent[n:]...)
	clear(s.unsent[len(s.unsent):cap(s.unsent)][:n])
	if len(s.unsent) > 0 {
		s.wakeSender()
	}
	box.request.Forget = append(box.request.Forget[:0], s.forget...)
	s.forget = s.forget[:0]
	box.request.Holder, box.request.Releases, box.request.Claims = nil, box.request.Releases[:0], box.request.Claims[:0]
	for _, c := range box.calls {
		if c.ttlMs == 0 {
			c.number, c.sent = s.number(c), true
			box.addRelease(c)
		}
	}
	for _, c := range box.calls {
		if c.ttlMs != 0 {
			c.number, c.sent = s.number(c), true
			box.addClaim(c)
		}
	}
	return n > 0 || len(box.request.Forget) > 0
}

// send implements [protocol].
func (s *holdStream) send() error {
	err := s.stream.Send(&s.outbox.request)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.outbox.calls {
			if s.asked[c.number] == c {
				c.sent = false
			}
		}
	}
	return err
}

// receive implements [protocol].
func (s *holdStream) receive() error { return s.stream.RecvMsg(&s.response) }

// answer implements [protocol].
func (s *holdStream) answer() {
	for _, a := range s.response.Answers {
		c := s.asked[a.Number]
		if c == nil {
			continue // the caller no longer waits
		}
		if c.turn != nil {
			delete(s.asked, a.Number)
			c.turn.end(s.reply(a))
			continue
		}
		if a.State == leasekeeperv1.HoldAnswer_WAITING && c.wait {
			c.turn = &turn{number: c.endpoint, done: make(chan struct{}), quit: func(why error) { s.quit(c, why) }}
		} else {
			delete(s.asked, a.Number)
		}
		c.answer, c.failed = s.reply(a)
		c.done <- struct{}{}
	}
}

// reply returns what an answer says. If the server knows no user of the stream, the stream was opened before access was enabled:
// then it ends, and the next one has a token.
func (s *holdStream) reply(a *leasekeeperv1.HoldAnswer) (reply, error) {
	r, err := holdReply(a)
	if err == nil || reasonOf(err) != leasekeeperv1.ErrorReason_UNAUTHENTICATED || s.endpoint.user == nil {
		return r, err
	}
	s.endpoint.user.Forget()
	s.mux.drop(s.muxStream)
	s.cancel(errTokenRefused())
	return reply{}, errTokenRefused()
}

// lost implements [protocol]. If a stream is refused, nothing has an effect. The refusal is the last word on each request if
// it comes without a reason: then it is not from our server, but from a proxy or another kind of server.
func (s *holdStream) lost(err error) error {
	if s.alarm != nil {
		s.alarm.Stop()
	}
	switch {
	case s.heard == noMoment && status.Code(err) == codes.Unimplemented:
		s.home.lackingUntil.Store(int64(now().add(lackingFor)))
		return errLacking
	case s.heard == noMoment && (err == errTokenRefused() || needsToken(err)): // the server carried out nothing
		return err
	case s.heard == noMoment && endpoints.Refuses(err) && reasonOf(err) == leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return err
	}
	return brokenStream(err)
}

// fail implements [protocol].
func (s *holdStream) fail(c *holdCall, err error) {
	if c.turn != nil {
		c.turn.end(reply{}, err)
		return
	}
	c.err, c.sent = err, c.sent && err != errLacking
	c.done <- struct{}{}
}

// brokenStream returns the error for a request that was under way when its stream ended. Its outcome is unknown, whatever
// the reason of the end.
func brokenStream(err error) error {
	if _, ok := status.FromError(err); ok {
		return status.Error(codes.Unavailable, "the stream to the server broke: "+store.Text(err))
	}
	return err
}

// leave removes a call that no caller waits for. The caller of leave holds the lock.
func (s *holdStream) leave(c *holdCall) {
	if c.number == 0 {
		for i, other := range s.unsent {
			if other == c {
				s.unsent = append(s.unsent[:i], s.unsent[i+1:]...)
				break
			}
		}
		return
	}
	delete(s.asked, c.number)
	if c.wait && !s.ended {
		s.forget = append(s.forget, c.number)
		s.wakeSender()
	}
}

// quit ends the turn of a call with an error, unless the turn has ended already.
func (s *holdStream) quit(c *holdCall, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[c.number] != c {
		return
	}
	s.leave(c)
	c.turn.end(reply{}, why)
}

// setAlarm sets the alarm for the end of a call, unless it goes off earlier. The caller holds the lock.
func (s *holdStream) setAlarm(c *holdCall, now moment) {
	if s.expires != noMoment && s.expires <= c.until {
		return
	}
	s.expires = c.until
	if left := c.until.sub(now); s.alarm == nil {
		s.alarm = time.AfterFunc(left, s.expire)
	} else {
		s.alarm.Reset(left)
	}
}

// expire ends the calls that have taken too long. One alarm serves all calls, since most are answered long before theirs.
func (s *holdStream) expire() {
	if s.expireAt(now()) {
		s.abandon()
	}
}

// expireAt reports whether the stream is silent.
func (s *holdStream) expireAt(now moment) (silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expires = noMoment
	var over []*holdCall
	check := func(c *holdCall) {
		switch {
		case c.turn != nil: // it has its first answer
		case now >= c.until:
			over = append(over, c)
		default:
			s.setAlarm(c, now)
		}
	}
	for _, c := range s.unsent {
		check(c)
	}
	for _, c := range s.asked { // order: each call has a caller of its own
		check(c)
	}
	for _, c := range over {
		s.leave(c)
		silent = silent || s.silent(c.since, now)
		c.err = context.DeadlineExceeded
		c.done <- struct{}{}
	}
	return silent
}

// holdReply returns what an answer says.
func holdReply(a *leasekeeperv1.HoldAnswer) (reply, error) {
	if a.State == leasekeeperv1.HoldAnswer_FAILED {
		return reply{}, holdError(a)
	}
	return reply{
		state: leasekeeperv1.AcquireResponse_State(a.State), // both enums have the same numbers
		token: backend.Token(a.Token), ttlMs: a.TtlMs, place: int(a.Place), current: a.Current, overtaken: a.Overtaken,
	}, nil
}

// holdError returns the error in an answer, as Acquire or Release would have returned it.
func holdError(a *leasekeeperv1.HoldAnswer) error {
	if a.Code == uint32(codes.OK) {
		return errNonsense
	}
	if a.Reason == leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return status.Error(codes.Code(a.Code), a.Error)
	}
	return refusal(codes.Code(a.Code), a.Reason, a.Error)
}

// holdOutbox makes the messages of one stream, and reuses their memory.
type holdOutbox struct {
	request  leasekeeperv1.HoldRequest
	calls    []*holdCall                  // the calls in request
	claims   []*leasekeeperv1.HoldClaim   // for reuse
	releases []*leasekeeperv1.HoldRelease // for reuse
	holder   backend.Holder               // the holder that the server assumes for a claim without one
	known    bool                         // the server assumes one
}

func (b *holdOutbox) addRelease(c *holdCall) {
	n := len(b.request.Releases)
	if n == len(b.releases) {
		b.releases = append(b.releases, new(leasekeeperv1.HoldRelease))
	}
	r := b.releases[n]
	r.Number, r.Name, r.Lease, r.Traceparent = c.number, c.name, c.lease, c.trace
	b.request.Releases = append(b.request.Releases, r)
}

func (b *holdOutbox) addClaim(c *holdCall) {
	n := len(b.request.Claims)
	if n == len(b.claims) {
		b.claims = append(b.claims, new(leasekeeperv1.HoldClaim))
	}
	m := b.claims[n]
	m.Number, m.Name, m.Lease, m.TtlMs, m.Wait, m.Holder = c.number, c.name, c.lease, c.ttlMs, c.wait, nil
	m.Priority, m.Traceparent = int32(c.priority), c.trace
	switch {
	case b.known && c.holder == b.holder:
	case n == 0: // the first claim of a message sets the holder for those that follow
		b.request.Holder = wireHolder(c.holder)
		b.holder, b.known = c.holder, true
	default:
		m.Holder = wireHolder(c.holder)
	}
	b.request.Claims = append(b.request.Claims, m)
}
