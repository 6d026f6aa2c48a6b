package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// stuckHolder is a member that accepts claims and answers when the test lets it.
type stuckHolder struct {
	*node.Node
	let chan struct{} // closed when the member may answer
}

func (s *stuckHolder) Hold(ctx context.Context, watch *node.NameWatch, ops []entry.Command, answer func([]node.HoldAnswer)) error {
	go func() {
		<-s.let
		if err := s.Node.Hold(context.Background(), watch, ops, answer); err != nil {
			panic(err)
		}
	}()
	return nil
}

// startStuck returns a front whose member does not answer claims until the returned function is called. The end of the
// test calls it too.
func startStuck(t *testing.T, cfg Config) (*front, func()) {
	t.Helper()
	s := &stuckHolder{let: make(chan struct{})}
	let := make(chan struct{}, 1)
	let <- struct{}{}
	release := func() {
		select {
		case <-let:
			close(s.let)
		default:
		}
	}
	f := startWith(t, cfg, func(n *node.Node) member { s.Node = n; return s })
	f.node = s.Node
	t.Cleanup(release)
	return f, release
}

// An invalid request fails alone. An invalid message ends the stream.
func TestHoldRefusesInvalidInput(t *testing.T) {
	f := startFront(t)
	c := f.holder()
	for _, spoil := range []func(*leasekeeperv1.HoldClaim){
		func(c *leasekeeperv1.HoldClaim) { c.Name = "" },
		func(c *leasekeeperv1.HoldClaim) { c.Name = strings.Repeat("x", 10_000) },
		func(c *leasekeeperv1.HoldClaim) { c.TtlMs = 0 },
		func(c *leasekeeperv1.HoldClaim) { c.TtlMs = 1 << 62 },
		func(c *leasekeeperv1.HoldClaim) { c.Lease = 0 },
		func(c *leasekeeperv1.HoldClaim) { c.Lease = -1 },
		func(c *leasekeeperv1.HoldClaim) { c.Holder = &leasekeeperv1.Holder{Id: strings.Repeat("x", 1000)} },
	} {
		claim := c.claim("n", 1)
		spoil(claim)
		c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{claim}})
		c.fails(claim.Number, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
	c.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{c.release("n", 0)}})
	c.fails(c.number, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	good := c.claim("n", 1)
	c.send(&leasekeeperv1.HoldRequest{
		Holder: &leasekeeperv1.Holder{Text: strings.Repeat("x", 5000)}, Claims: []*leasekeeperv1.HoldClaim{good},
	})
	c.fails(c.number, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	wantEqual(t, "held", f.info("n").Held, false)
	wantEqual(t, "waiting", f.server.limits.places.Waiting(), 0)

	many := &leasekeeperv1.HoldRequest{}
	for range 1024 + 1 {
		many.Releases = append(many.Releases, c.release("n", 1))
	}
	twice := &leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{{Number: 1, Name: "n", Lease: 7, TtlMs: 1000}}}
	for _, req := range []*leasekeeperv1.HoldRequest{many, twice} {
		c := f.holder()
		c.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{{Number: 1, Name: "n", Lease: 1}}})
		c.wants(1, leasekeeperv1.HoldAnswer_RELEASED)
		c.send(req)
		wantReason(t, c.breaks(), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
	if info := f.info("n"); info.Held {
		t.Errorf("held: %v", info)
	}
}

// The holder is named once for all claims, or with each claim. A claim of a known lease id by another holder is
// refused, whether the lease waits or holds. The earlier claim continues.
func TestHoldRefusesALeaseOfAnotherHolder(t *testing.T) {
	f := startFront(t)
	c := f.holder()
	first, own := c.claim("n", 1), c.claim("own", 2)
	own.Holder = holder("other")
	c.send(&leasekeeperv1.HoldRequest{Holder: holder("me"), Claims: []*leasekeeperv1.HoldClaim{first, own}})
	c.next()
	c.next()
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("later", 3)}})
	c.next()
	for name, id := range map[string]string{"n": "me", "own": "other", "later": "me"} {
		wantEqual(t, "holder of "+name, f.info(name).Holder.GetId(), id)
	}
	waits := c.claim("n", 4)
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{waits}})
	c.wants(waits.Number, leasekeeperv1.HoldAnswer_WAITING)
	for _, lease := range []int64{1, 4} {
		taken := c.claim("n", lease)
		taken.Holder = holder("thief")
		c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{taken}})
		c.fails(taken.Number, codes.AlreadyExists, leasekeeperv1.ErrorReason_LEASE_TAKEN)
	}
	// A repeated claim, even with a changed card, is the same claim. Each repetition is answered.
	again := c.claim("n", 4)
	again.Holder = &leasekeeperv1.Holder{Id: "me", Text: "new"}
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{again}})
	c.wants(again.Number, leasekeeperv1.HoldAnswer_WAITING)
	f.release("n", 1)
	c.wants(waits.Number, leasekeeperv1.HoldAnswer_HELD)
	c.wants(again.Number, leasekeeperv1.HoldAnswer_HELD)
	eventually(t, "no claim waits", func() bool { return f.server.limits.places.Waiting() == 0 })
}

// A claim that does not wait leaves no lease.
func TestHoldRefusesClaimsThatDoNotWait(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	c := f.holder()
	claim := c.claim("n", 2)
	claim.Wait = false
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{claim}})
	a := c.wants(1, leasekeeperv1.HoldAnswer_REFUSED)
	if a.Current.GetHolder().GetId() != "me" || a.Token != 0 {
		t.Errorf("got %v", a)
	}
	wantEqual(t, "waiting", f.info("n").Waiting, 0)
}

// A forgotten claim stays in the queue and disturbs no other claim.
func TestForgottenClaimOfHoldStaysInTheQueue(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("n", 2), c.claim("n", 3)}})
	c.wants(1, leasekeeperv1.HoldAnswer_WAITING)
	c.wants(2, leasekeeperv1.HoldAnswer_WAITING)
	c.send(&leasekeeperv1.HoldRequest{Forget: []uint64{1, 77}})
	eventually(t, "one is forgotten", func() bool { return f.server.limits.places.Waiting() == 1 })
	f.release("n", 1)
	wantEqual(t, "holder", f.info("n").Lease, 2)
	f.release("n", 2)
	c.wants(2, leasekeeperv1.HoldAnswer_HELD)
	// The server keeps nothing of a stream whose client has left.
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("n", 4)}})
	c.wants(3, leasekeeperv1.HoldAnswer_WAITING)
	c.cancel()
	eventually(t, "no claim waits", func() bool { return f.server.limits.places.Waiting() == 0 })
	wantEqual(t, "waiting", f.info("n").Waiting, 1)
}

// The client has ended its requests and still receives the results.
func TestHoldAnswersAfterTheLastRequest(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("n", 2)}})
	wantOK(t, c.stream.CloseSend())
	c.wants(1, leasekeeperv1.HoldAnswer_WAITING)
	f.release("n", 1)
	c.wants(1, leasekeeperv1.HoldAnswer_HELD)
	if err := c.breaks(); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
}

// Each request above the limit fails by itself, and does not affect the others.
func TestHoldRefusesRequestsAboveItsLimits(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequests = 2
	f, let := startStuck(t, cfg)
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{
		Releases: []*leasekeeperv1.HoldRelease{c.release("a", 1)},
		Claims:   []*leasekeeperv1.HoldClaim{c.claim("b", 2), c.claim("c", 3), c.claim("d", 4)},
	})
	c.fails(3, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
	c.fails(4, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
	wantEqual(t, "requests", f.server.limits.requests.Open(), 2)
	let()
	c.wants(1, leasekeeperv1.HoldAnswer_RELEASED)
	c.wants(2, leasekeeperv1.HoldAnswer_HELD)
	wantEqual(t, "requests", f.server.limits.requests.Open(), 0)
	eventually(t, "no claim waits", func() bool { return f.server.limits.places.Waiting() == 0 })
}

// The stream ends although the member never answers.
func TestHoldEndsIfTheMemberDoesNotAnswer(t *testing.T) {
	cfg := anyPort()
	cfg.RequestTimeout = 100 * time.Millisecond
	f, _ := startStuck(t, cfg)
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("n", 1)}})
	wantReason(t, c.breaks(), codes.DeadlineExceeded, leasekeeperv1.ErrorReason_UNKNOWN_OUTCOME)
	eventually(t, "no claim waits", func() bool { return f.server.limits.places.Waiting() == 0 })
}

// The server stops reading from a client that does not read its answers, and later ends the stream.
func TestHoldEndsIfTheClientDoesNotRead(t *testing.T) {
	cfg := anyPort()
	cfg.RequestTimeout = 300 * time.Millisecond
	f := startWith(t, cfg, nil)
	f.hold("n", 1, 60_000)
	_, err := f.names().Announce(f.ctx(), &leasekeeperv1.AnnounceRequest{Name: "n", Lease: 1, Text: strings.Repeat("x", 4000)})
	wantOK(t, err)
	c := f.holder()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for open := true; open; {
			req := new(leasekeeperv1.HoldRequest)
			for range 100 {
				claim := c.claim("n", 2)
				claim.Wait = false
				req.Claims = append(req.Claims, claim)
			}
			open = c.stream.Send(req) == nil // until the server ends the stream
		}
	}()
	open := func() int64 { return f.server.metrics.streams[claimStream].Load() }
	eventually(t, "it has begun", func() bool { return open() == 1 })
	eventually(t, "it is cut off", func() bool { return open() == 0 })
	wantReason(t, c.breaks(), codes.DeadlineExceeded, leasekeeperv1.ErrorReason_UNKNOWN_OUTCOME)
	<-sent
	eventually(t, "nothing is under way", func() bool { return f.server.limits.requests.Open() == 0 })
}

// A server that stops answers the requests that it has accepted.
func TestStopAnswersOpenHoldRequests(t *testing.T) {
	f, let := startStuck(t, anyPort())
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("n", 1)}})
	eventually(t, "it has arrived", func() bool { return f.server.limits.requests.Open() == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- f.server.Stop(limited(t, context.Background())) }()
	<-f.server.life.Done()
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("m", 2)}})
	c.fails(2, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE)
	let()
	c.wants(1, leasekeeperv1.HoldAnswer_HELD)
	wantReason(t, c.breaks(), codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE)
	wantOK(t, <-stopped)
}
