package ownership

import "github.com/leasekeeper/leasekeeper/lessor"

// finished reports whether the waiter is an owner whose tenure a [Finish] has ended, although its lease still lasts.
func (w *waiter) finished() bool { return w.queue.owner == w && w.queue.finished }

// Finished reports whether a lease only lasts because a [Finish] holds its name on, and nobody has revoked it since.
func (g *Registry) Finished(lease lessor.ID) bool {
	w := g.claims[lease]
	return w != nil && w.finished() && w.queue.revoked == nil
}

// CheckRaise returns the token of the tenure in which a [RaiseMark] raises a mark. The caller raises the mark.
func (g *Registry) CheckRaise(op RaiseMark) (token int64, err error) {
	w := g.claims[op.Lease]
	if w == nil || w.queue.name != op.Name || w.queue.owner != w || w.finished() {
		return 0, ErrLost
	}
	return w.created, nil
}

// CheckFinish returns the token of the tenure that a [Finish] ends. done means that an earlier Finish has ended it, and
// the caller does nothing. Otherwise the caller records the tick and calls [Registry.Finish].
func (g *Registry) CheckFinish(view View, op Finish) (token int64, done bool, err error) {
	if op.Hold < 0 || op.Hold > lessor.MaxTTL {
		return 0, false, lessor.ErrTTLTooLarge
	}
	w := g.claims[op.Lease]
	switch {
	case w == nil:
		if _, exists := view.Leases.Lookup(op.Lease); exists {
			return 0, false, ErrLeaseTaken
		}
		return 0, true, g.finishedBefore(view.Stored, op)
	case w.queue.name != op.Name:
		return 0, false, ErrLeaseTaken
	case w.queue.owner != w:
		return 0, false, ErrLost
	}
	return w.created, w.finished(), nil
}

// finishedBefore returns nil if a [Finish] ended a tenure that is over, and [ErrLost] otherwise.
func (g *Registry) finishedBefore(stored Stored, op Finish) error {
	q := g.queues[op.Name]
	if q == nil {
		return ErrLost
	}
	for i := range min(q.ended, MaxPast) {
		tenure, err := stored.Past(op.Name, q.ended-1-i)
		switch {
		case err != nil:
			return err
		case tenure.Lease != op.Lease:
		case tenure.Finished:
			return nil
		default:
			return ErrLost
		}
	}
	return ErrLost
}

// Finish carries out a [Finish] that CheckFinish has allowed. If end is set, the caller ends the lease, or deletes its
// key, because it was released. That is so for a tenure that was revoked, too: its name becomes free as soon as its
// holder has finished.
func (g *Registry) Finish(env *Env, op Finish) (end bool, err error) {
	q := g.claims[op.Lease].queue
	q.finished = true
	lease, _ := env.Leases.Lookup(op.Lease)
	if op.Hold == 0 || lease.RenewalRefused {
		return true, nil
	}
	if q.pinned != nil {
		q.pinned = nil
		g.unpinLease(env, op.Lease)
	}
	if err := env.Leases.Retain(op.Lease, op.Hold, env.At, env.Now); err != nil {
		return false, err
	}
	env.Effects.leaseChanged(op.Lease)
	return false, g.statusChanged(env, q)
}
