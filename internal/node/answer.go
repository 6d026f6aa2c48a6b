package node

import (
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// answerFromMemory answers what can be answered from memory on the caller's goroutine, which saves it to wake the member's
// and to be woken by it. It does not wait: if the replica is at work it is false, and so it is for what cannot
// be answered like that. Then the member's goroutine is to be asked.
func (n *Node) answerFromMemory(s *submission) bool {
	switch s.event.(type) {
	case replica.Renewal, replica.Read, replica.Inspection:
	default:
		return false
	}
	if !n.owner.TryLock() {
		return false
	}
	defer n.owner.Unlock()
	if n.ended {
		return false
	}
	now := clock.Now()
	effects, ok := n.replica.Answer(now, s.event)
	if !ok {
		return false
	}
	n.calls[s.id] = s.caller
	for _, effect := range effects {
		switch e := effect.(type) {
		case replica.Reply:
			n.answer(e.ID, replica.Authorized(e, clock.Now))
		case replica.ReadAt:
			n.answer(e.ID, replica.Authorized(e, clock.Now))
		case replica.Renewed:
			n.answer(e.ID, replica.Authorized(e, clock.Now))
		case replica.WakeAt:
			n.wake = now.Add(e.Wait)
			n.wakeRun()
		}
	}
	return true
}
