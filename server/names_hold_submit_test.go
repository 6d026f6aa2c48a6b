package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// shuffledHolder is a member that grants every claim, in random order and a few at a time. It answers all before it
// accepts the last. It refuses every tenth message.
type shuffledHolder struct {
	*node.Node
	rand  *rand.Rand
	calls int
	last  lessor.ID // the claim that is made last
	open  []func()
}

func (s *shuffledHolder) Hold(_ context.Context, _ *node.NameWatch, ops []entry.Command, answer func([]node.HoldAnswer)) error {
	last, _ := ops[len(ops)-1].(ownership.Claim)
	if s.calls++; s.calls%10 == 0 && last.Lease != s.last {
		return replica.ErrNoLeader
	}
	places := s.rand.Perm(len(ops))
	for len(places) > 0 {
		n := 1 + s.rand.IntN(len(places))
		var known []node.HoldAnswer
		for _, place := range places[:n] {
			a := node.HoldAnswer{Place: place, Ended: true}
			if c, ok := ops[place].(ownership.Claim); ok {
				a.Claimed = ownership.Claimed{Lease: c.Lease, TTL: c.TTL, Token: int64(c.Lease), Holder: c.Holder}
			}
			known = append(known, a)
		}
		places = places[n:]
		s.open = append(s.open, func() { answer(known) })
	}
	left := 10
	if last.Lease == s.last {
		left = 0
	}
	s.answer(left)
	return nil
}

// answer answers until left answers are open.
func (s *shuffledHolder) answer(left int) {
	s.rand.Shuffle(len(s.open), func(i, j int) { s.open[i], s.open[j] = s.open[j], s.open[i] })
	for len(s.open) > left {
		s.open[0]()
		s.open = s.open[1:]
	}
}

// mixed returns a message of claims and releases, and records the expected answers in want. The id of each lease is its
// number.
func (c *holdClient) mixed(r *rand.Rand, want map[uint64]leasekeeperv1.HoldAnswer_State) *leasekeeperv1.HoldRequest {
	req := new(leasekeeperv1.HoldRequest)
	for range 1 + r.IntN(32) {
		if r.IntN(2) == 0 {
			release := c.release("n", int64(c.number)+1)
			want[release.Number] = leasekeeperv1.HoldAnswer_RELEASED
			req.Releases = append(req.Releases, release)
		}
	}
	for range 1 + r.IntN(6) {
		claim := c.claim(fmt.Sprint("n/", c.number+1), int64(c.number)+1)
		want[claim.Number] = leasekeeperv1.HoldAnswer_HELD
		if claim.Wait = r.IntN(2) == 0; r.IntN(5) == 0 {
			claim.Name = ""
			want[claim.Number] = leasekeeperv1.HoldAnswer_FAILED
		}
		req.Claims = append(req.Claims, claim)
	}
	return req
}

// Each request receives exactly one answer, its own, in whatever order the member answers, and whichever requests are
// refused.
func TestHoldAnswersEachRequestOnce(t *testing.T) {
	const messages = 300
	r := rand.New(rand.NewPCG(1, 2))
	s := &shuffledHolder{rand: rand.New(rand.NewPCG(3, 4))}
	f := startWith(t, anyPort(), func(n *node.Node) member { s.Node = n; return s })
	c := f.holder()
	want := make(map[uint64]leasekeeperv1.HoldAnswer_State)
	all := make([]*leasekeeperv1.HoldRequest, messages)
	for i := range all {
		all[i] = c.mixed(r, want)
	}
	last := c.claim("last", int64(c.number)+1)
	want[last.Number], s.last = leasekeeperv1.HoldAnswer_HELD, lessor.ID(last.Lease)
	all = append(all, &leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{last}})
	sent := make(chan error, 1)
	go func() {
		for _, req := range all {
			if err := c.stream.Send(req); err != nil {
				sent <- err
				return
			}
		}
		sent <- c.stream.CloseSend()
	}()
	lost, done := 0, make(map[leasekeeperv1.HoldAnswer_State]uint64)
	for len(want) > 0 {
		a := c.next()
		state, open := want[a.Number]
		delete(want, a.Number)
		unavailable := codes.Code(a.Code) == codes.Unavailable
		if unavailable && open && state != leasekeeperv1.HoldAnswer_FAILED {
			lost++
			continue
		}
		if !open || unavailable || a.State != state || state == leasekeeperv1.HoldAnswer_HELD && a.Token != a.Number {
			t.Fatalf("got %v, want %v", a, state)
		}
		done[state]++
	}
	wantOK(t, <-sent)
	methods := f.server.metrics.methods
	wantEqual(t, "claims counted", methods[leasekeeperv1.Leasekeeper_Acquire_FullMethodName][codes.OK].Load(), done[leasekeeperv1.HoldAnswer_HELD])
	wantEqual(t, "releases counted", methods[leasekeeperv1.Leasekeeper_Release_FullMethodName][codes.OK].Load(), done[leasekeeperv1.HoldAnswer_RELEASED])
	if lost == 0 {
		t.Error("the member took all on")
	}
	wantEqual(t, "requests under way", f.server.limits.requests.Open(), 0)
	eventually(t, "no claim waits", func() bool { return f.server.limits.places.Waiting() == 0 })
}

// A message with an invalid request in the middle is not counted at all.
func TestHoldCountsNothingOfAnInvalidMessage(t *testing.T) {
	f := startFront(t)
	c := f.holder()
	c.send(&leasekeeperv1.HoldRequest{
		Releases: []*leasekeeperv1.HoldRelease{{Number: 5, Name: "n", Lease: 1}},
		Claims:   []*leasekeeperv1.HoldClaim{{Number: 6, Name: "n", Lease: 2, TtlMs: 1000}, {Number: 6, Name: "m", Lease: 3, TtlMs: 1000}},
	})
	wantReason(t, c.breaks(), codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	wantEqual(t, "held", f.info("n").Held, false)
	wantEqual(t, "requests under way", f.server.limits.requests.Open(), 0)
}
