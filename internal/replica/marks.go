package replica

import (
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// mark returns the value of the key of a name's mark as the commands so far left it; nil if there is no such key.
func (r *Replica) mark(name string) ([]byte, error) {
	kv, err := r.applying.writer.Get(record.MarkKey(name))
	if err != nil || kv == nil {
		return nil, err
	}
	return kv.Value, nil
}

// raised returns the value that the mark of a name gets; nil if it stays.
func (r *Replica) raised(name, tick string, token int64) ([]byte, error) {
	value, err := r.mark(name)
	if err != nil {
		return nil, err
	}
	return record.RaisedMark(name, value, tick, token)
}

// putMark puts a mark, unless its value is nil.
func (r *Replica) putMark(name string, value []byte) error {
	if value == nil {
		return nil
	}
	_, err := r.applying.writer.Put(keyspace.PutRequest{Key: record.MarkKey(name), Value: value})
	return err
}

func (r *Replica) applyRaise(op ownership.RaiseMark) error {
	token, err := r.names.CheckRaise(op)
	if err != nil {
		return r.raisedByMark(op.Name, op.Tick, op.Token)
	}
	value, err := r.raised(op.Name, op.Tick, token)
	if err != nil {
		return err
	}
	return r.putMark(op.Name, value)
}

// applyFinish records the tick of a finish, and ends the lease or holds it on. The mark and the end of the tenure share
// a revision, so no reader sees one without the other.
func (r *Replica) applyFinish(op ownership.Finish) error {
	token, done, err := r.names.CheckFinish(r.applying.env.View, op)
	if errors.Is(err, ownership.ErrLost) {
		return r.raisedByMark(op.Name, op.Tick, op.Token)
	}
	if done || err != nil {
		return err
	}
	value, err := r.raised(op.Name, op.Tick, token)
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
		return r.putMark(op.Name, value)
	case value == nil:
		return r.endLease(op.Lease, ownership.WhyReleased, "")
	}
	err = r.applying.writer.Group(func() error {
		if err := r.putMark(op.Name, value); err != nil {
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

// raisedByMark returns nil if the mark says that an earlier request of a tenure that is over has recorded the tick.
// Otherwise it returns [ownership.ErrLost].
func (r *Replica) raisedByMark(name, tick string, token int64) error {
	value, err := r.mark(name)
	if err != nil {
		return err
	}
	if shown, err := record.MarkShows(name, value, tick, token); shown || err != nil {
		return err
	}
	return ownership.ErrLost
}
