package lessortest

import (
	"iter"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
)

var (
	_ lessor.Interface = (*Fake)(nil)
	_ lessor.TxnDelete = FakeTxnDelete{}
)

// Fake is a set of ids that implements [lessor.Interface]. The zero value is an empty set.
type Fake struct {
	granted map[lessor.ID]struct{}
}

// NewFake returns a Fake that holds the given ids.
func NewFake(ids ...lessor.ID) *Fake {
	f := &Fake{granted: make(map[lessor.ID]struct{})}
	for _, id := range ids {
		f.granted[id] = struct{}{}
	}
	return f
}

// Grant adds id to the set.
func (f *Fake) Grant(id lessor.ID, ttl int64) (*lessor.Lease, error) {
	if f.granted == nil {
		f.granted = make(map[lessor.ID]struct{})
	}
	f.granted[id] = struct{}{}
	return &lessor.Lease{ID: id, TTL: time.Duration(ttl) * time.Second}, nil
}

// Revoke removes id from the set.
func (f *Fake) Revoke(id lessor.ID) error {
	delete(f.granted, id)
	return nil
}

// Lookup returns a lease with only its id set if id is in the set, otherwise nil.
func (f *Fake) Lookup(id lessor.ID) *lessor.Lease {
	if _, ok := f.granted[id]; !ok {
		return nil
	}
	return &lessor.Lease{ID: id}
}

// Renew returns 10.
func (f *Fake) Renew(lessor.ID) (int64, error) { return 10, nil }

// The other methods do nothing.

func (f *Fake) SetRangeDeleter(lessor.RangeDeleter)                  {}
func (f *Fake) SetCheckpointer(lessor.Checkpointer)                  {}
func (f *Fake) Checkpoint(lessor.ID, int64) error                    { return nil }
func (f *Fake) Attach(lessor.ID, []lessor.Item) error                { return nil }
func (f *Fake) Detach(lessor.ID, []lessor.Item) error                { return nil }
func (f *Fake) GetLease(lessor.Item) lessor.ID                       { return lessor.NoLease }
func (f *Fake) Promote(time.Duration)                                {}
func (f *Fake) Demote()                                              {}
func (f *Fake) Leases() []*lessor.Lease                              { return nil }
func (f *Fake) ExpiredLeasesC() <-chan []*lessor.Lease               { return nil }
func (f *Fake) Recover(iter.Seq[lessor.Record], []lessor.Leadership) {}
func (f *Fake) Stop()                                                {}

// FakeTxnDelete is a transaction that deletes nothing.
type FakeTxnDelete struct{}

// DeleteRange reports that nothing was deleted at revision 0.
func (FakeTxnDelete) DeleteRange(_, _ []byte) (n, rev int64) { return 0, 0 }

// End does nothing.
func (FakeTxnDelete) End() {}
