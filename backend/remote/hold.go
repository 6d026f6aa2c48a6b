package remote

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

// lackingFor is how long a server that does not know Hold is not asked for it again: it may be another by then.
const lackingFor = time.Minute

// errLacking says that a server does not know Hold. Nothing has happened then.
var errLacking = errors.New("the server is older than that")

// holds has the stream of claims and releases of one endpoint.
type holds struct {
	b        *Backend
	endpoint *endpoint

	mu      sync.Mutex
	present *holdStream // nil if there is none
	lacking time.Time   // when the server was found not to know such streams; zero if it was not
}

// demand is one claim or release on its way.
type demand struct {
	name     string // as on the wire
	lease    int64
	ttlMs    int64 // 0: it is a release
	wait     bool
	holder   backend.Holder
	endpoint int64 // the number of the endpoint
	done     chan struct{}

	// Guarded by the stream's lock until done is told.
	number uint64 // 0 until it is about to be sent
	since  moment
	until  moment // when it has taken too long
	sent   bool   // it may have left
	answer reply
	failed error // the answer, if it is that
	err    error // if no answer came
	turn   *turn // if it stands in line
}

// moment is how long after began something was. To read that takes half the time that reading the time of day takes
// as well, which nobody asks for here.
type moment time.Duration

// noMoment is before all others.
const noMoment moment = math.MinInt64

var began = time.Now()

func now() moment { return moment(time.Since(began)) }

// add returns the moment d later, or the last one there is.
func (m moment) add(d time.Duration) moment {
	if sum := m + moment(d); d < 0 || sum >= m {
		return sum
	}
	return math.MaxInt64
}

func (m moment) sub(earlier moment) time.Duration { return time.Duration(m - earlier) }

// demands are used again: each has a channel.
var demands = sync.Pool{New: func() any { return &demand{done: make(chan struct{}, 1)} }}

// free gives a demand back that nobody else knows any more.
func (d *demand) free() {
	*d = demand{done: d.done}
	demands.Put(d)
}

// do sends a demand and waits for the first answer to it. The demand is the caller's again if there is one.
func (h *holds) do(ctx context.Context, limit time.Duration, d *demand) (sent bool, err error) {
	for {
		if ctx.Err() != nil { // then nothing is sent any more
			return false, context.Cause(ctx)
		}
		s, err := h.stream()
		if err != nil {
			return false, err
		}
		if s.take(d, limit) {
			return s.wait(ctx, d)
		}
		h.drop(s)
	}
}

// stream returns the stream that there is, or a new one.
func (h *holds) stream() (*holdStream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lacking.IsZero() {
		if time.Since(h.lacking) < lackingFor {
			return nil, errLacking
		}
		h.lacking = time.Time{}
	}
	if h.present != nil {
		return h.present, nil
	}
	s := &holdStream{home: h, asked: make(map[uint64]*demand), wake: make(chan struct{}, 1), heard: noMoment, expires: noMoment}
	s.ctx, s.cancel = context.WithCancelCause(h.b.endpoints.Base)
	if !h.b.endpoints.Spawn(s.run) {
		s.cancel(h.b.endpoints.Closed)
		return nil, h.b.endpoints.Closed
	}
	h.present = s
	return s, nil
}

// drop has the next demand open another stream than s.
func (h *holds) drop(s *holdStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.present == s {
		h.present = nil
	}
}

// lacks notes that the server does not know such streams.
func (h *holds) lacks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lacking = time.Now()
}

// holdStream is one stream. A goroutine sends what there is to send, as much as there is at a time, and
// another brings the answers to those who wait for them.
type holdStream struct {
	home   *holds
	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{} // tells that there is something to send; holds one

	mu      sync.Mutex
	last    uint64             // the number of the newest demand
	unsent  []*demand          // in order
	forget  []uint64           // claims about whose turn nobody wants to hear any more, not yet said
	asked   map[uint64]*demand // that were sent and wait for an answer, or for their turn
	heard   moment             // when the last answer came; noMoment if none has
	alarm   *time.Timer        // runs expire; nil until there was a demand
	expires moment             // when it does; noMoment if it does not
	ended   bool               // nothing more is taken, sent or answered
}

// take has a demand sent, which may take so long. It returns false if the stream has ended.
func (s *holdStream) take(d *demand, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	d.since = now()
	d.until = d.since.add(limit)
	s.look(d, d.since)
	s.unsent = append(s.unsent, d)
	s.ring()
	return true
}

// ring wakes the sending side.
func (s *holdStream) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wait waits for the answer to a demand that was taken. If the backend is closed, the stream ends.
func (s *holdStream) wait(ctx context.Context, d *demand) (sent bool, err error) {
	caller, keeper := ends(ctx)
	select {
	case <-d.done:
		return d.sent, d.err
	case <-caller:
	case <-keeper:
	}
	s.mu.Lock()
	select {
	case <-d.done: // just now
		s.mu.Unlock()
		return d.sent, d.err
	default:
	}
	s.leave(d)
	sent, silent := d.sent, s.silent(d, now())
	s.mu.Unlock()
	if silent {
		s.stalled()
	}
	return sent, context.Cause(ctx)
}

// expire ends the demands whose time is over. There is one timer for all of them, which is late for none, since
// most are answered long before theirs.
func (s *holdStream) expire() {
	if s.expireAt(now()) {
		s.stalled()
	}
}

// expireAt reports whether the stream has stalled.
func (s *holdStream) expireAt(now moment) (stalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expires = noMoment
	var over []*demand
	look := func(d *demand) {
		switch {
		case d.turn != nil: // it is answered
		case now >= d.until:
			over = append(over, d)
		default:
			s.look(d, now)
		}
	}
	for _, d := range s.unsent {
		look(d)
	}
	for _, d := range s.asked { // order: each goes to its own place
		look(d)
	}
	for _, d := range over {
		s.leave(d)
		stalled = stalled || s.silent(d, now)
		d.err = context.DeadlineExceeded
		d.done <- struct{}{}
	}
	return stalled
}

// look sees to it that a demand is looked at when its time is over. The lock is held.
func (s *holdStream) look(d *demand, now moment) {
	if s.expires == noMoment || d.until < s.expires {
		s.expires = d.until
		if left := d.until.sub(now); s.alarm == nil {
			s.alarm = time.AfterFunc(left, s.expire)
		} else {
			s.alarm.Reset(left)
		}
	}
}

// silent says whether nothing at all has come for so long since a demand was made that nothing will. The lock is held.
func (s *holdStream) silent(d *demand, now moment) bool {
	return s.heard <= d.since && now.sub(d.since) >= longestStall
}

// stalled gives up a stream on which nothing comes: what others wait for there will not come either.
func (s *holdStream) stalled() {
	s.cancel(errStalled)
	s.home.drop(s)
}

// ends returns what ends a context before its deadline.
func ends(ctx context.Context) (caller, keeper <-chan struct{}) {
	if r, ok := ctx.(*backend.Request); ok {
		return r.Ends()
	}
	return ctx.Done(), nil
}

// leave has nothing more be told about a demand. The lock is held.
func (s *holdStream) leave(d *demand) {
	if d.number == 0 {
		for i, other := range s.unsent {
			if other == d {
				s.unsent = append(s.unsent[:i], s.unsent[i+1:]...)
				break
			}
		}
		return
	}
	delete(s.asked, d.number)
	if d.wait && !s.ended {
		s.forget = append(s.forget, d.number)
		s.ring()
	}
}

// quit ends listening for the turn of a claim.
func (s *holdStream) quit(d *demand, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[d.number] != d {
		return // it has been told of, or the stream has ended
	}
	s.leave(d)
	d.turn.end(reply{}, why)
}

// answered brings answers to those who wait for them.
func (s *holdStream) answered(answers []*leasekeeperv1.HoldAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = now()
	for _, a := range answers {
		d := s.asked[a.Number]
		if d == nil {
			continue // nobody waits for it any more
		}
		if d.turn != nil {
			delete(s.asked, a.Number)
			d.turn.end(heldReply(a))
			continue
		}
		if a.State == leasekeeperv1.HoldAnswer_WAITING && d.wait {
			d.turn = &turn{number: d.endpoint, done: make(chan struct{}), quit: func(why error) { s.quit(d, why) }}
		} else {
			delete(s.asked, a.Number)
		}
		d.answer, d.failed = heldReply(a)
		d.done <- struct{}{}
	}
}

// end gives up the stream, for all who wait.
func (s *holdStream) end(err error) {
	s.cancel(err)
	s.home.drop(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	if s.alarm != nil {
		s.alarm.Stop()
	}
	if s.heard == noMoment && status.Code(err) == codes.Unimplemented {
		s.home.lacks()
		err = errLacking
	} else if s.heard != noMoment || !refuses(err) || reasonOf(err) != leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		err = broken(err) // otherwise something on the way does not let us through
	}
	for _, d := range s.unsent {
		d.err = err
		d.done <- struct{}{}
	}
	for _, d := range s.asked { // order: each goes to its own place
		if d.turn != nil {
			d.turn.end(reply{}, err)
			continue
		}
		d.err, d.sent = err, d.sent && err != errLacking
		d.done <- struct{}{}
	}
	s.unsent, s.asked = nil, nil
}

// broken is the end of a stream as seen by those who wait for answers on it: nobody knows what became of what
// they asked for, whatever the reason of the end.
func broken(err error) error {
	if _, ok := status.FromError(err); ok {
		return status.Error(codes.Unavailable, "the stream to the server broke: "+text(err))
	}
	return err
}

var errEndedStream = status.Error(codes.Unavailable, "the server ended it")

// released is the state of a name that was.
const released = leasekeeperv1.AcquireResponse_State(leasekeeperv1.HoldAnswer_RELEASED)

// heldReply is what an answer says.
func heldReply(a *leasekeeperv1.HoldAnswer) (reply, error) {
	if a.State == leasekeeperv1.HoldAnswer_FAILED {
		return reply{}, failure(a)
	}
	return reply{
		state: leasekeeperv1.AcquireResponse_State(a.State), // their numbers are the same
		token: backend.Token(a.Token), ttlMs: a.TtlMs, place: int(a.Place), current: a.Current,
	}, nil
}

// failure is the error of an answer, as a method of its own would have returned it.
func failure(a *leasekeeperv1.HoldAnswer) error {
	if a.Code == uint32(codes.OK) {
		return errNonsense
	}
	st := status.New(codes.Code(a.Code), a.Error)
	if a.Reason != leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: a.Reason.String()}); err == nil {
			st = detailed
		}
	}
	return st.Err()
}

// claim makes a claim over the stream. If it stands in line, and waits, the turn is where it will be told of.
func (h *holds) claim(ctx context.Context, limit time.Duration, c *asked, number int64) (r reply, t *turn, sent bool, err error) {
	d := demands.Get().(*demand)
	d.name, d.lease, d.ttlMs, d.wait, d.holder, d.endpoint = c.name, c.lease, c.ttlMs, c.wait, c.holder, number
	if sent, err = h.do(ctx, limit, d); err != nil {
		return reply{}, nil, sent, err
	}
	t, r, err = d.turn, d.answer, d.failed
	if err == nil {
		err = c.sensible(r)
	}
	switch {
	case t == nil:
		d.free()
	case err != nil:
		t.quit(err)
	}
	return r, t, true, err
}

// release releases a lease over the stream.
func (h *holds) release(ctx context.Context, limit time.Duration, name string, lease int64) (sent bool, err error) {
	d := demands.Get().(*demand)
	d.name, d.lease = name, lease
	if sent, err = h.do(ctx, limit, d); err != nil {
		return sent, err
	}
	if err = d.failed; err == nil && d.answer.state != released {
		err = errNonsense
	}
	d.free()
	return true, err
}
