package replica

import (
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// marks are the marks of names as the commands so far left them.
func (r *Replica) marks() record.Marks { return record.Marks{Writer: r.applying.writer} }

func (r *Replica) applyRaise(op ownership.RaiseMark) error {
	token, err := r.names.CheckRaise(op)
	if err != nil {
		return r.marks().CheckRaised(op.Name, op.Tick, op.Token)
	}
	value, err := r.marks().Raised(op.Name, op.Tick, token)
	if err != nil {
		return err
	}
	return r.marks().Put(op.Name, value)
}

// applyFinish records the tick of a finish, and ends the lease or holds it on. The mark and the end of the tenure share
// a revision, so no reader sees one without the other.
func (r *Replica) applyFinish(op ownership.Finish) error {
	token, done, err := r.names.CheckFinish(r.applying.env.View, op)
	if errors.Is(err, ownership.ErrLost) {
		return r.marks().CheckRaised(op.Name, op.Tick, op.Token)
	}
	if done || err != nil {
		return err
	}
	value, err := r.marks().Raised(op.Name, op.Tick, token)
	if err != nil {
		return err
	}
	end, err := r.names.Finish(&r.applying.env, op)
	r.storeNames()
	switch {
	case err != nil:
		return err
	case !end:
		r.applying.datable = true
		return r.marks().Put(op.Name, value)
	case value == nil:
		return r.endLease(op.Lease, ownership.WhyReleased, "")
	}
	err = r.applying.writer.Group(func() error {
		if err := r.marks().Put(op.Name, value); err != nil {
			return err
		}
		_, err := r.applying.writer.DeleteRange(keyspace.DeleteRequest{Key: ownership.Key(op.Name, op.Lease)})
		return err
	})
	if err != nil {
		return err
	}
	return r.updateNames(ownership.WhyReleased, "") // the lease ends together with its claim
}
