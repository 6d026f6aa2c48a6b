package node

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// A HoldAnswer is what became of one of the requests that were handed to [Node.Hold] together.
type HoldAnswer struct {
	Place   int               // of the request among them
	Claimed ownership.Claimed // of a claim
	Ended   bool              // of a release: whether there was something to end
	Err     error
	// Waits says that it is a claim which stands in line, about whose turn the watch will tell.
	Waits bool
}

// Hold hands over claims and releases together, each a [Claim] or a [Release], and returns as soon as the
// member has taken that on. They are carried out in order, in one log entry if they fit. answer is called
// one or more times from the member's own goroutine, with all that became known at the same time, and must
// not block. Together the calls answer every request once, unless the node stops before. ops is the node's
// from here on; the answers are the caller's.
//
// A claim that waits and stands in line is added to the watch, which must be one of [Node.WatchClaims],
// before it is answered: the watch tells of its turn, or its end. The caller drops it from the watch.
func (n *Node) Hold(ctx context.Context, watch *NameWatch, ops []entry.Command, answer func([]HoldAnswer)) error {
	if len(ops) == 0 {
		return nil
	}
	select { // as in ask
	case <-n.done:
		return ErrStopped
	default:
	}
	first := n.nextID.Add(uint64(len(ops))) - uint64(len(ops)) + 1
	h := &holdCall{node: n, watch: watch, first: first, ops: ops, answer: answer}
	select {
	case n.intake <- submission{event: replica.Requests{First: first, Commands: ops}, id: first, following: len(ops) - 1, caller: h}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.done:
		return ErrStopped
	}
}

// handed is one call of Hold. It belongs to the member's goroutine.
type holdCall struct {
	node   *Node
	watch  *NameWatch
	first  uint64 // the ID of the first request; the others follow
	ops    []entry.Command
	answer func([]HoldAnswer)
	known  []HoldAnswer // what became of some, in the Step under way
}

func (h *holdCall) deliver(e replica.Effect) {
	reply := e.(replica.Reply)
	h.deliverReply(&reply)
}

// deliverReply gathers what one Step says, until it has said all.
func (h *holdCall) deliverReply(reply *replica.Reply) {
	delete(h.node.calls, reply.ID)
	if len(h.known) == 0 {
		h.node.answeredHolds = append(h.node.answeredHolds, h)
		if h.known == nil {
			h.known = make([]HoldAnswer, 0, len(h.ops)) // mostly all are answered together
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

// tell answers what one Step has said. What this Step changed was published before, and a claim that joined a
// line may have got its turn by it already. From here on the watch tells of that.
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
			h.watch.add(claim.Lease)
		}
	}
	known := h.known
	h.known = nil
	h.answer(known)
}

// deliverHolds lets those calls of Hold answer about which the Step that was just performed said something.
func (n *Node) deliverHolds() {
	for i, h := range n.answeredHolds {
		n.answeredHolds[i] = nil
		h.answerAll()
	}
	n.answeredHolds = n.answeredHolds[:0]
}
