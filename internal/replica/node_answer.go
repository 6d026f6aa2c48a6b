package replica

import "github.com/leasekeeper/leasekeeper/clock"

// atOnce answers what can be answered from memory on the caller's goroutine, which saves it to wake the member's
// and to be woken by it. It does not wait: if the replica is at work it is false, and so it is for what cannot
// be answered like that. Then the member's goroutine is to be asked.
func (n *Node) atOnce(s *submission) bool {
	switch s.event.(type) {
	case Renewal, Read, Inspection:
	default:
		return false
	}
	if !n.owner.TryLock() {
		return false
	}
	defer n.owner.Unlock()
	if n.over {
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
		case Reply:
			n.answer(e.ID, Authorized(e, clock.Now))
		case ReadAt:
			n.answer(e.ID, Authorized(e, clock.Now))
		case Renewed:
			n.answer(e.ID, Authorized(e, clock.Now))
		case WakeAt:
			n.wake = now.Add(e.Wait)
			n.wakeRun()
		}
	}
	return true
}
