package server

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// holdClient is a client of Hold.
type holdClient struct {
	f      *front
	stream leasekeeperv1.Leasekeeper_HoldClient
	cancel context.CancelFunc
	number uint64
	unread []*leasekeeperv1.HoldAnswer
	// messages is the number of received messages.
	messages int
}

func (f *front) holder() *holdClient {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx())
	f.t.Cleanup(cancel)
	stream, err := f.names().Hold(ctx)
	wantOK(f.t, err)
	return &holdClient{f: f, stream: stream, cancel: cancel}
}

func (c *holdClient) send(r *leasekeeperv1.HoldRequest) {
	c.f.t.Helper()
	wantOK(c.f.t, c.stream.Send(r))
}

// claim returns a waiting claim with the next number.
func (c *holdClient) claim(name string, lease int64) *leasekeeperv1.HoldClaim {
	c.number++
	return &leasekeeperv1.HoldClaim{Number: c.number, Name: name, Lease: lease, TtlMs: 60_000, Wait: true}
}

func (c *holdClient) release(name string, lease int64) *leasekeeperv1.HoldRelease {
	c.number++
	return &leasekeeperv1.HoldRelease{Number: c.number, Name: name, Lease: lease}
}

// next returns the next answer.
func (c *holdClient) next() *leasekeeperv1.HoldAnswer {
	c.f.t.Helper()
	for len(c.unread) == 0 {
		resp, err := c.stream.Recv()
		wantOK(c.f.t, err)
		c.messages++
		c.unread = resp.Answers
	}
	a := c.unread[0]
	c.unread = c.unread[1:]
	return a
}

// wants checks the next answer.
func (c *holdClient) wants(number uint64, state leasekeeperv1.HoldAnswer_State) *leasekeeperv1.HoldAnswer {
	c.f.t.Helper()
	a := c.next()
	if a.Number != number || a.State != state {
		c.f.t.Fatalf("got %v, want %v to request %d", a, state, number)
	}
	return a
}

// fails checks that the next answer is a failure.
func (c *holdClient) fails(number uint64, code codes.Code, reason leasekeeperv1.ErrorReason) {
	c.f.t.Helper()
	a := c.wants(number, leasekeeperv1.HoldAnswer_FAILED)
	if codes.Code(a.Code) != code || a.Reason != reason || a.Error == "" {
		c.f.t.Fatalf("got %v, want %v %v", a, code, reason)
	}
}

// breaks waits for the end of the stream, and returns its error.
func (c *holdClient) breaks() error {
	for {
		if _, err := c.stream.Recv(); err != nil {
			return err
		}
	}
}

// The claims of one message share a log entry, and so do their releases. All answers come in one message.
func TestHoldClaimsOfOneMessageShareALogEntry(t *testing.T) {
	const many = 100
	f := startFront(t)
	c := f.holder()
	before, err := f.node.Status(f.ctx())
	wantOK(t, err)
	req := &leasekeeperv1.HoldRequest{Holder: holder("me")}
	for i := range int64(many) {
		req.Claims = append(req.Claims, c.claim(fmt.Sprint("n/", i), i+1))
	}
	c.send(req)
	tokens := make(map[uint64]bool)
	for i := range uint64(many) {
		a := c.wants(i+1, leasekeeperv1.HoldAnswer_HELD)
		wantEqual(t, "ttl", a.TtlMs, 60_000)
		tokens[a.Token] = true
	}
	wantEqual(t, "tokens", len(tokens), many)
	wantEqual(t, "messages", c.messages, 1)
	wantEqual(t, "holder", f.info("n/7").Holder.GetId(), "me")
	req = new(leasekeeperv1.HoldRequest)
	for i := range int64(many) {
		req.Releases = append(req.Releases, c.release(fmt.Sprint("n/", i), i+1))
	}
	c.send(req)
	for i := range uint64(many) {
		wantEqual(t, "ended", c.wants(many+i+1, leasekeeperv1.HoldAnswer_RELEASED).Ended, true)
	}
	wantEqual(t, "messages", c.messages, 2)
	after, err := f.node.Status(f.ctx())
	wantOK(t, err)
	wantEqual(t, "log entries", after.LogIndex-before.LogIndex, 2)
	wantEqual(t, "requests under way", f.server.limits.requests.Open(), 0)
	eventually(t, "no claim waits", func() bool { return f.server.limits.places.Waiting() == 0 })
}

// A claim becomes the holder by a release in the same message.
func TestHoldReleasesPrecedeClaims(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	c := f.holder()
	claim := c.claim("n", 2)
	claim.Number = 2
	c.send(&leasekeeperv1.HoldRequest{
		Releases: []*leasekeeperv1.HoldRelease{{Number: 1, Name: "n", Lease: 1}},
		Claims:   []*leasekeeperv1.HoldClaim{claim},
	})
	c.wants(1, leasekeeperv1.HoldAnswer_RELEASED)
	c.wants(2, leasekeeperv1.HoldAnswer_HELD)
}

// Many claims wait on one stream. Each gets its turn in order of arrival, or learns why not.
func TestManyWaitersOfOneHoldStreamGetTheirTurns(t *testing.T) {
	const many = 500
	cfg := anyPort()
	cfg.MaxStreams = many
	f := startWith(t, cfg, nil)
	first := f.hold("n", 1, 60_000)
	c := f.holder()
	req := new(leasekeeperv1.HoldRequest)
	for i := range int64(many) {
		req.Claims = append(req.Claims, c.claim("n", i+2))
	}
	c.send(req)
	last := first.Token
	for i := range uint64(many) {
		a := c.wants(i+1, leasekeeperv1.HoldAnswer_WAITING)
		if a.Place != int32(i+1) || a.Token <= last || a.Current.GetLease() != 1 {
			t.Fatalf("got %v behind token %d", a, last)
		}
		last = a.Token
	}
	wantEqual(t, "waiting", f.server.limits.places.Waiting(), many)
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("n", many+2)}})
	c.fails(many+1, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED)
	// The others get their turns one after the other, except those that leave the queue before.
	for i := range int64(many) {
		if i%10 == 3 {
			f.release("n", i+2)
			c.fails(uint64(i+1), codes.NotFound, leasekeeperv1.ErrorReason_LOST)
			continue
		}
		f.release("n", f.info("n").Lease)
		c.wants(uint64(i+1), leasekeeperv1.HoldAnswer_HELD)
	}
	eventually(t, "no claim waits", func() bool { return f.server.limits.places.Waiting() == 0 })
}

// Long and short compressed messages alternate.
func TestHoldAcceptsCompressedMessages(t *testing.T) {
	f := startFront(t)
	stream, err := f.names().Hold(f.ctx(), grpc.UseCompressor(gzip.Name))
	wantOK(t, err)
	c := &holdClient{f: f, stream: stream, cancel: func() {}}
	for _, n := range []int{1, 65, 0, 2} {
		req := new(leasekeeperv1.HoldRequest)
		for range n {
			req.Claims = append(req.Claims, c.claim(fmt.Sprint("n/", c.number+1), int64(c.number)+1))
		}
		c.send(req)
		for _, claim := range req.Claims {
			c.wants(claim.Number, leasekeeperv1.HoldAnswer_HELD)
			wantEqual(t, claim.Name, f.info(claim.Name).Lease, claim.Lease)
		}
	}
}
