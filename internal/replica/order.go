package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func (r *Replica) applyPrefer(op ownership.Prefer) error {
	leases, err := r.names.Prefer(&r.applying.env, op)
	if err != nil {
		return err
	}
	r.storeNames()
	overtaken, err := r.dequeue(op.Name, leases)
	if err != nil {
		return err
	}
	return r.enqueue(overtaken)
}

// dequeue deletes the keys of claims that are overtaken, all at one revision. It returns what enqueue puts.
func (r *Replica) dequeue(name string, leases []lessor.ID) (overtaken []keyspace.PutRequest, err error) {
	if len(leases) == 0 {
		return nil, nil
	}
	writer := r.applying.writer
	for _, id := range leases {
		card, err := r.applying.stored.Card(name, id)
		if err != nil {
			return nil, err
		}
		overtaken = append(overtaken, keyspace.PutRequest{Key: ownership.Key(name, id), Value: card, Lease: int64(id)})
	}
	r.names.Requeue(&r.applying.env, leases)
	err = writer.Group(func() error {
		for i := range overtaken {
			if _, err := writer.DeleteRange(keyspace.DeleteRequest{Key: overtaken[i].Key}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return overtaken, r.updateNames(ownership.WhyDeleted, "")
}

// enqueue creates the keys of overtaken claims again, each at a revision of its own: their new tokens. applyEntry updates the
// names after the command.
func (r *Replica) enqueue(overtaken []keyspace.PutRequest) error {
	for i := range overtaken {
		if _, err := r.applying.writer.Put(overtaken[i]); err != nil {
			return err
		}
	}
	return nil
}
