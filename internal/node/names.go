package node

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Claim claims a name; see [ownership.Claim]. The errors that do not concern the member are ErrInvalidClaim,
// ErrLeaseTaken and ErrLost.
func (n *Node) Claim(ctx context.Context, claim ownership.Claim) (ownership.Claimed, error) {
	_, claimed, err := change[ownership.Claimed](ctx, n, claim)
	return claimed, err
}

// Release ends the lease of a claim, and reports whether there was something to end.
func (n *Node) Release(ctx context.Context, name string, lease lessor.ID) (bool, error) {
	_, released, err := change[ownership.Released](ctx, n, ownership.Release{Name: name, Lease: lease})
	return released.Ended, err
}

// RevokeName ends the tenure of a name's holder.
func (n *Node) RevokeName(ctx context.Context, revoke ownership.Revoke) (ownership.Revoked, error) {
	_, revoked, err := change[ownership.Revoked](ctx, n, revoke)
	return revoked, err
}

// Transfer moves a name to the first waiter in its queue, and returns the new token.
func (n *Node) Transfer(ctx context.Context, name string, lease lessor.ID) (int64, error) {
	_, transferred, err := change[ownership.Transferred](ctx, n, ownership.Transfer{Name: name, Lease: lease})
	return transferred.Token, err
}

// Finish ends the tenure of a claim that owns its name; see [ownership.Finish].
func (n *Node) Finish(ctx context.Context, op ownership.Finish) error {
	_, _, err := change[replica.Result](ctx, n, op)
	return err
}

// RaiseMark raises the mark of a name; see [ownership.RaiseMark].
func (n *Node) RaiseMark(ctx context.Context, op ownership.RaiseMark) error {
	_, _, err := change[replica.Result](ctx, n, op)
	return err
}

// CheckMarks returns [replica.ErrTooNew] if Finish and RaiseMark are refused, because a member of the cluster may be of an
// older version.
func (n *Node) CheckMarks(ctx context.Context) error {
	_, _, err := inspect[replica.Result](ctx, n, replica.MarksQuery{})
	return err
}

// Prefer moves a waiting claim to before all others; see [ownership.Prefer].
func (n *Node) Prefer(ctx context.Context, op ownership.Prefer) error {
	_, _, err := change[replica.Result](ctx, n, op)
	return err
}

// Pin keeps a name with its holder until Unpin.
func (n *Node) Pin(ctx context.Context, name, reason string) error {
	_, _, err := change[replica.Result](ctx, n, ownership.Pin{Name: name, Reason: reason})
	return err
}

// Unpin ends a pin.
func (n *Node) Unpin(ctx context.Context, name string) error {
	_, _, err := change[replica.Result](ctx, n, ownership.Unpin{Name: name})
	return err
}

// Place returns the position of a claim in its queue.
func (n *Node) Place(ctx context.Context, name string, lease lessor.ID) (ownership.Place, error) {
	_, place, err := inspect[ownership.Place](ctx, n, replica.PlaceQuery{Name: name, Lease: lease})
	return place, err
}

// flush writes the buffered records of names into the database, where readers find them.
func (n *Node) flush(ctx context.Context) error {
	failed, err := look(ctx, n, func(r *replica.Replica, _ clock.Instant) error { return r.Flush() })
	if err != nil {
		return err
	}
	return failed
}

// holderRetries bounds the queries for one name whose holder keeps changing.
const holderRetries = 4

// Names returns the authoritative states of names, in their order, and the log index at which they held for all of
// them.
func (n *Node) Names(ctx context.Context, names []string) (replica.NameStates, error) {
	return n.askNames(ctx, replica.NamesQuery{Names: names})
}

// Queue returns the authoritative state of a name with its first waiters and their cards: at most a number of waiters. If all of
// these have left while their cards were read, Queue asks again, so that the queue of a name with waiters is not empty.
func (n *Node) Queue(ctx context.Context, name string, most int) (s ownership.State, err error) {
	for range holderRetries {
		states, err := n.askNames(ctx, replica.NamesQuery{Names: []string{name}, Waiters: most})
		if err != nil {
			return ownership.State{}, err
		}
		s = states.Names[0]
		if err := n.addCards(ctx, &s); err != nil || len(s.Queue) > 0 || s.Waiting <= 0 {
			return s, err
		}
	}
	return s, nil
}

// addCards reads the cards of waiters. It drops waiters that have left the queue since the query.
func (n *Node) addCards(ctx context.Context, s *ownership.State) error {
	stay := s.Queue[:0]
	for _, w := range s.Queue {
		_, found, err := n.Range(ctx, keyspace.RangeRequest{Key: ownership.Key(s.Name, w.Lease)}, true)
		if err != nil {
			return err
		}
		if len(found.KVs) == 0 {
			s.Waiting--
			continue
		}
		w.Card = found.KVs[0].Value
		stay = append(stay, w)
	}
	s.Queue = stay
	return nil
}

// askNames returns the states of names with their holders' cards.
func (n *Node) askNames(ctx context.Context, q replica.NamesQuery) (replica.NameStates, error) {
	_, states, err := inspect[replica.NameStates](ctx, n, q)
	if err != nil {
		return replica.NameStates{}, err
	}
	ctx, release, err := n.use(ctx)
	if err != nil {
		return replica.NameStates{}, err
	}
	defer release()
	for i := range states.Names {
		if err := n.addHolder(ctx, &states.Names[i], q.Waiters); err != nil {
			return replica.NameStates{}, err
		}
	}
	return states, nil
}

// addHolder reads the holder's card of a name. If the name has a new holder since the query, addHolder repeats the
// query, for that number of waiters.
func (n *Node) addHolder(ctx context.Context, s *ownership.State, waiters int) error {
	for range holderRetries {
		if !s.Held || s.HolderKnown {
			return nil
		}
		token, holder, err := record.Holder(n.db, s.Name)
		if err != nil {
			return err
		}
		if token == s.Token {
			s.Holder = holder
			return nil
		}
		_, again, err := inspect[replica.NameStates](ctx, n, replica.NamesQuery{Names: []string{s.Name}, Waiters: waiters})
		if err != nil {
			return err
		}
		*s = again.Names[0]
	}
	return nil
}

// HeldNames lists up to limit held names that begin with prefix and sort after after. The list reflects all log
// entries up to the returned index, and perhaps later ones.
func (n *Node) HeldNames(ctx context.Context, prefix, after string, limit int) ([]string, uint64, error) {
	_, now, err := inspect[replica.NameStates](ctx, n, replica.NamesQuery{})
	if err != nil {
		return nil, 0, err
	}
	if err := n.flush(ctx); err != nil {
		return nil, 0, err
	}
	names, err := n.scanHeld(ctx, prefix, after, limit)
	return names, now.Index, err
}

func (n *Node) scanHeld(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	ctx, release, err := n.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	var found []string
	err = record.Held(n.db, prefix, after, func(name string) bool {
		found = append(found, name)
		return len(found) < limit && ctx.Err() == nil
	})
	return found, errors.Join(context.Cause(ctx), err)
}

// History returns the last tenures of a name, newest first.
func (n *Node) History(ctx context.Context, name string) ([]record.Tenure, error) {
	if _, err := n.readHeader(ctx, false); err != nil {
		return nil, err
	}
	if err := n.flush(ctx); err != nil {
		return nil, err
	}
	_, release, err := n.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	var past []record.Tenure
	err = n.store.ReadAlongside(func() (err error) {
		snapshot := n.db.NewSnapshot()
		past, err = record.History(snapshot, name)
		return errors.Join(err, snapshot.Close())
	})
	return past, err
}
