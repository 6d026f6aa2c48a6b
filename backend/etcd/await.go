package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Await implements [backend.Backend]. It watches the key of the waiter directly before its own, and its own. So when a holder
// leaves, only one waiter wakes.
func (b *Backend) Await(ctx context.Context, l backend.Lease) (backend.Grant, error) {
	own, err := endpoints.Known[*lease](b, l)
	if err != nil {
		return backend.Grant{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return backend.Grant{}, err
	}
	defer end()
	what := "waiting for " + own.name
	retries := b.endpoints.Retries(what)
	for {
		retries.Begin()
		s, f := b.lookUpPlace(ctx, own)
		switch {
		case f != nil:
			err = f.Err
		case s.gone:
			return backend.Grant{}, fmt.Errorf("%w: %s: the key %s is gone from etcd", backend.ErrLost, what, own.key)
		case s.before == nil:
			return backend.Grant{Held: true, Token: own.token(), TTL: own.ttl}, nil
		default:
			err = b.watchKeys(ctx, deletions(s.rev+1, own.key, string(s.before.Key)))
		}
		if err == nil {
			retries.Succeeded()
			continue
		}
		if err := retries.After(ctx, b.retriable(err)); err != nil {
			return backend.Grant{}, err
		}
	}
}

// deletions returns a watch that ends with the first deletion of one of the keys.
func deletions(rev int64, keys ...string) watching {
	w := watching{handle: func(*pb.WatchResponse) bool { return true }}
	for _, key := range keys {
		w.creates = append(w.creates, &pb.WatchCreateRequest{
			Key: []byte(key), StartRevision: rev, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT},
		})
	}
	return w
}
