package node

import (
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// answerFromMemory answers a renewal, read or inspection from memory on the caller's goroutine. That saves waking the
// member's goroutine and waiting for it. answerFromMemory does not wait: it returns false if the replica is busy or
// memory cannot answer. The caller must then submit the event.
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
