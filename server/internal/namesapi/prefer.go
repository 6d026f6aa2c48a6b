package namesapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxPreferKeys bounds the keys below a name among which Prefer looks for a claim.
const maxPreferKeys = 4096

// Prefer finds the claims of a holder in the order of the queue, and has the member prefer the first one that waits.
func (n *Service) Prefer(ctx context.Context, r *leasekeeperv1.PreferRequest) (*leasekeeperv1.PreferResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	if r.To == "" {
		return nil, fmt.Errorf("%w: the id of the holder is missing", backend.ErrInvalid)
	}
	ctx, err := n.cfg.Rights.MayName(ctx, r.Name, access.Administer)
	if err != nil {
		return nil, err
	}
	_, found, err := n.cfg.Member.Range(ctx, keyspace.RangeRequest{
		Key: []byte(r.Name + "/"), End: []byte(r.Name + "0"), Limit: maxPreferKeys, SortTarget: keyspace.SortByCreate, SortOrder: keyspace.SortAscend,
	}, false)
	if err != nil {
		return nil, err
	}
	for i := range found.KVs {
		kv := &found.KVs[i]
		if lease := lessor.ID(kv.Lease); string(kv.Key) != string(ownership.Key(r.Name, lease)) || readHolder(kv.Value).Id != r.To {
			continue
		}
		err := n.cfg.Member.Prefer(ctx, ownership.Prefer{Name: r.Name, Lease: lessor.ID(kv.Lease)})
		if !errors.Is(err, ownership.ErrNotWaiting) { // it holds the name, or has just left
			return &leasekeeperv1.PreferResponse{}, err
		}
	}
	return nil, ownership.ErrNotWaiting
}
