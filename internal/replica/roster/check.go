package roster

import "slices"

// MaxLearners bounds the learners of a cluster, as etcd does.
const MaxLearners = 1

// readyPart is the part of the leader's log, in tenths, that a learner must have before it is promoted.
const readyPart = 9

// View is what a leader sees of its cluster.
type View struct {
	Self uint64
	// Secure: access is enabled, so no member may be reached without TLS.
	Secure bool
	// Up reports whether another member was heard within the last election timeout.
	Up func(id uint64) bool
	// Match returns the last log entry that a member is known to have, this leader included.
	Match func(id uint64) uint64
}

// up reports whether a member is up. The leader itself is.
func (v View) up(id uint64) bool { return id == v.Self || v.Up(id) }

// Check returns why a leader must not propose a change; nil if it may. The leader has applied all earlier changes. A
// change that ApplyIn refuses is refused for the same reason. Other reasons keep the cluster able to commit:
//
//   - A voter is added, or a learner promoted, only if a majority of the voters that there would be has started. Of the
//     voters, only one may be without a known data directory.
//   - A voter that is up is removed only if the voters that are left are able to commit.
//   - A learner is promoted only if it is bound, and has nine tenths of the leader's log.
//
// No two members get the same address, also if one is written with http and the other with https, or in another
// spelling. Apply only compares URLs, because all programs of a cluster must decide alike there.
func (r Roster) Check(c Change, v View) error {
	after, err := r.ApplyIn(v.Secure, c)
	if err != nil {
		return err
	}
	if (c.Kind == Add || c.Kind == Update) && r.usesAddress(c.Member) {
		return ErrPeerURLExists
	}
	switch c.Kind {
	case Add:
		return r.checkAdd(c, v)
	case Remove:
		return r.checkRemove(c, after, v)
	case Promote:
		return r.checkPromote(c, v)
	}
	return nil
}

func (r Roster) checkAdd(c Change, v View) error {
	switch {
	case c.Member.Learner && len(r.Learners()) >= MaxLearners:
		return ErrTooManyLearners
	case c.Member.Learner:
		return nil
	case r.started(r.Voters()) < len(r.Voters()):
		return ErrNotEnoughStarted
	case !r.allUp(v):
		return ErrUnhealthy
	}
	return nil
}

func (r Roster) checkRemove(c Change, after Roster, v View) error {
	gone, _ := r.Member(c.Member.ID)
	left := after.Voters()
	up := 0
	for _, id := range left {
		if v.up(id) {
			up++
		}
	}
	switch {
	case gone.Learner:
		return nil
	case after.started(left) < majority(len(left)):
		return ErrNotEnoughStarted
	case v.up(gone.ID) && up < majority(len(left)):
		return ErrUnhealthy
	}
	return nil
}

func (r Roster) checkPromote(c Change, v View) error {
	switch {
	case r.Unbound(c.Member.ID) || !v.up(c.Member.ID) || v.Match(c.Member.ID)*10 < v.Match(v.Self)*readyPart:
		return ErrLearnerNotInStep
	case r.started(r.Voters())+1 < majority(len(r.Voters())+1):
		return ErrNotEnoughStarted
	}
	return nil
}

// started returns how many of these members are bound.
func (r Roster) started(ids []uint64) (n int) {
	for _, id := range ids {
		if !r.Unbound(id) {
			n++
		}
	}
	return n
}

func (r Roster) allUp(v View) bool {
	return !slices.ContainsFunc(r.Voters(), func(id uint64) bool { return !v.up(id) })
}

func majority(n int) int { return n/2 + 1 }
