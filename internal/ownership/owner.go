package ownership

import "github.com/leasekeeper/leasekeeper/lessor"

// UpdateOwners updates the owners after the changes of keys at one revision, which were reported since the last call.
// why and note are the reason for the tenures and waits that ended.
func (g *Registry) UpdateOwners(env *Env, revision int64, why Why, note string) error {
	for i, q := range g.touched {
		q.touched = false
		if err := g.updateOwner(env, q, revision, uint32(i), why, note); err != nil {
			return err
		}
	}
	for _, w := range g.left {
		env.publish(Change{Kind: WaitEnded, State: State{Name: w.queue.name}, Lease: w.lease, Why: why, Note: note})
	}
	for _, id := range g.orphans {
		g.ended.add(id, why, note)
		env.Effects.Orphans = append(env.Effects.Orphans, id)
	}
	g.touched, g.cards, g.left, g.orphans = g.touched[:0], g.cards[:0], g.left[:0], g.orphans[:0]
	return nil
}

// updateOwner makes the first waiter of a queue the owner, if it is not the owner yet, and records that.
func (g *Registry) updateOwner(env *Env, q *queue, revision int64, order uint32, why Why, note string) error {
	head := q.head()
	if head == q.owner {
		return g.updateCard(env, q, revision)
	}
	current, err := g.ownersTenure(env.View, q)
	if err != nil {
		return err
	}
	change := Change{Kind: Vacated}
	if old := q.owner; old != nil {
		change.Lease, change.Why, change.Note = old.lease, why, note
		g.endTenure(env, q, current, why, note)
	}
	q.advance()
	q.revision, q.current, current = revision, nil, nil
	if head != nil {
		card, err := g.card(env.View, head)
		if err != nil {
			return err
		}
		current = &Tenure{Token: head.created, Lease: head.lease, Holder: card, From: env.Wall}
		g.remember(q, current)
		q.freed, q.freedOrder = 0, 0
		change.Kind = Acquired
	} else {
		q.freed, q.freedOrder = revision, order
	}
	g.storeRecord(env, q, current)
	if head == nil && len(q.barred) == 0 {
		g.setFree(q)
		g.forget(env)
	}
	g.publish(env, q, current, change)
	return nil
}

// publish adds the name's state to a change and publishes it.
func (g *Registry) publish(env *Env, q *queue, current *Tenure, change Change) {
	change.State = g.stateWithoutCard(env.View, q)
	if current != nil {
		change.State.Holder = current.Holder
	}
	env.publish(change)
}

// endTenure moves the owner's tenure to the past.
func (g *Registry) endTenure(env *Env, q *queue, tenure *Tenure, why Why, note string) {
	if tenure == nil {
		tenure = &Tenure{Token: q.owner.created, Lease: q.owner.lease}
	}
	tenure.To, tenure.Why, tenure.Note, tenure.Finished = env.Wall, why, note, q.finished
	env.Effects.Past = append(env.Effects.Past, PastTenure{Name: q.name, Number: q.ended, Tenure: tenure})
	q.ended++
	q.last = q.owner.created
	pinned := q.pinned != nil
	q.pinned, q.revoked, q.finished = nil, nil, false
	if pinned {
		g.unpinLease(env, q.owner.lease)
	}
}

// updateCard records the owner's card if its key was rewritten.
func (g *Registry) updateCard(env *Env, q *queue, revision int64) error {
	if q.owner == nil {
		if len(q.waiters) == 0 && len(q.barred) == 0 && q.place == nil {
			g.dropQueue(env, q) // a waiter came and left within one revision
		}
		return nil
	}
	for _, f := range g.cards {
		if f.waiter != q.owner {
			continue
		}
		current, err := g.ownersTenure(env.View, q)
		if err != nil {
			return err
		}
		if current == nil {
			current = &Tenure{Token: q.owner.created, Lease: q.owner.lease}
		}
		current.Holder = storedCard(f.card)
		q.revision = revision
		g.storeRecord(env, q, current)
		g.publish(env, q, current, Change{Kind: CardChanged})
	}
	return nil
}

// dropQueue removes a queue without waiters, unless its name has a past.
func (g *Registry) dropQueue(env *Env, q *queue) {
	if q.ended > 0 {
		g.setFree(q)
		g.forget(env)
		return
	}
	delete(g.queues, q.name)
}

// card returns a waiter's card for a stored tenure.
func (g *Registry) card(view View, w *waiter) ([]byte, error) {
	for _, f := range g.cards {
		if f.waiter == w {
			return storedCard(f.card), nil
		}
	}
	card, err := view.Stored.Card(w.queue.name, w.lease)
	return storedCard(card), err
}

func storedCard(card []byte) []byte {
	if len(card) > maxCard {
		return nil
	}
	return card
}

// ownersTenure returns the stored tenure of a queue's owner, or nil if there is none.
func (g *Registry) ownersTenure(view View, q *queue) (*Tenure, error) {
	if q.owner == nil || q.current != nil {
		return q.current, nil
	}
	return view.Stored.Tenure(q.name)
}

// remember keeps the tenure of a queue's owner in memory for a while.
func (g *Registry) remember(q *queue, current *Tenure) {
	if old := g.recent[g.next]; old != nil && old.remembered == g.next {
		old.current = nil
	}
	g.recent[g.next], q.remembered = q, g.next
	g.next = (g.next + 1) % rememberedTenures
	q.current = current
}

// storeRecord adds the record of a name to the effects.
func (g *Registry) storeRecord(env *Env, q *queue, current *Tenure) {
	if current != nil {
		current.Finished = q.finished
	}
	env.Effects.Records = append(env.Effects.Records, q.asRecord(current))
}

func (q *queue) asRecord(current *Tenure) Record {
	return Record{
		Name: q.name, Ended: q.ended, Current: current, Last: q.last, Pinned: q.pinned, Revoked: q.revoked,
		Freed: q.freed, FreedOrder: q.freedOrder, Revision: q.revision,
	}
}

// forget removes the names that have been free longest, if there are too many.
func (g *Registry) forget(env *Env) {
	for g.free.Len() > maxFreeNames {
		q := g.free.Front().Value.(*queue)
		g.unfree(q)
		delete(g.queues, q.name)
		if q.last > g.forgotten {
			g.forgotten = q.last
			env.Effects.ForgottenToken = q.last
		}
		env.Effects.Forgotten = append(env.Effects.Forgotten, Forgotten{q.name, min(q.ended, MaxPast)})
	}
}

// unpinLease makes a lease expire again after it lost a pin, unless it owns another pinned name.
func (g *Registry) unpinLease(env *Env, id lessor.ID) {
	lease, exists := env.Leases.Lookup(id)
	if !exists || !lease.Pinned || g.ownsPinned(env.Leases, id) {
		return
	}
	if err := env.Leases.Unpin(id, env.At, env.Now); err == nil {
		env.Effects.leaseChanged(id)
	}
}
