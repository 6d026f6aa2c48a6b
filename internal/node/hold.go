package node

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// A HoldAnswer is the outcome of one request of a [Node.Hold] call.
type HoldAnswer struct {
	Place   int               // index of the request in ops
	Claimed ownership.Claimed // set for a claim
	Ended   bool              // set for a release that ended something
	Err     error
	// Waits is set for a claim that waits in the queue. The watch reports its turn or its end.
	Waits bool
}

// Hold submits claims and releases together, and returns as soon as the member has queued them. They are applied in
// order, in one log entry if they fit. Hold takes ownership of ops.
//
// The member's goroutine calls answer once or more, each time with all outcomes that became known together. answer
// must not block; it owns the slice. Together the calls answer every request once, unless the node stops first.
//
// A claim that waits is added to watch before it is answered; watch comes from [Node.WatchClaims]. The watch then
// reports the claim's turn or its end. The caller drops the claim from the watch.
func (n *Node) Hold(ctx context.Context, watch *NameWatch, ops []entry.Command, answer func([]HoldAnswer)) error {
	if len(ops) == 0 {
		return nil
	}
	select { // a stopped member queues nothing, as in ask
	case <-n.done:
		return ErrStopped
	default:
	}
	first := n.nextID.Add(uint64(len(ops))) - uint64(len(ops)) + 1
	h := &holdCall{node: n, watch: watch, first: first, ops: ops, answer: answer}
	select {
	case n.intake <- submission{event: replica.Requests{First: first, Commands: ops, Caller: callerOf(ctx)}, id: first, following: len(ops) - 1, caller: h}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.done:
		return ErrStopped
	}
}

// holdCall is one call of Hold. Only the goroutine that holds owner uses it.
type holdCall struct {
	node   *Node
	watch  *NameWatch
	first  uint64 // the ID of the first request; the IDs of the others follow
	ops    []entry.Command
	answer func([]HoldAnswer)
	known  []HoldAnswer // outcomes from the current Step, not delivered yet
}

func (h *holdCall) deliver(e replica.Effect) {
	reply := e.(replica.Reply)
	h.deliverReply(&reply)
}

// deliverReply collects the outcomes of one Step until answerAll delivers them.
func (h *holdCall) deliverReply(reply *replica.Reply) {
	delete(h.node.calls, reply.ID)
	if len(h.known) == 0 {
		h.node.answeredHolds = append(h.node.answeredHolds, h)
		if h.known == nil {
			h.known = make([]HoldAnswer, 0, len(h.ops)) // usually one Step answers all
		}
	}
	a := HoldAnswer{Place: int(reply.ID - h.first), Err: reply.Err}
	switch result := reply.Result.(type) {
	case ownership.Claimed:
		a.Claimed = result
	case ownership.Released:
		a.Ended = result.Ended
	}
	h.known = append(h.known, a)
}

// answerAll delivers the outcomes of one Step. The Step's changes were published before, so a claim that joined a
// queue may have had its turn already. From here on the watch reports it.
func (h *holdCall) answerAll() {
	for i := range h.known {
		a := &h.known[i]
		claim, ok := h.ops[a.Place].(ownership.Claim)
		if !ok || !claim.Wait || a.Err != nil || a.Claimed.Before == 0 {
			continue
		}
		place, err := h.node.replica.Place(claim.Name, claim.Lease)
		switch {
		case err != nil:
			*a = HoldAnswer{Place: a.Place, Err: err}
		case place.Before == 0:
			a.Claimed.Before = 0
		default:
			a.Waits = true
			h.watch.addLease(claim.Lease)
		}
	}
	known := h.known
	h.known = nil
	h.answer(known)
}

// deliverHolds delivers the outcomes of the last Step to the calls of Hold that have some.
func (n *Node) deliverHolds() {
	for i, h := range n.answeredHolds {
		n.answeredHolds[i] = nil
		h.answerAll()
	}
	n.answeredHolds = n.answeredHolds[:0]
}
