package etcdapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// errSessionExpired has the text of etcd's client library, which etcd's server returns unchanged.
var errSessionExpired = status.Error(codes.Unknown, "mutex: session is expired")

// ofRecipe returns a refusal for lack of a right as etcd's Lock and Election do, which are clients of etcd themselves: with its
// text, and without its code. Other errors stay as they are.
func ofRecipe(err error) error {
	if reason, answer := translate(err); reason == reasonDenied || reason == reasonLogin || reason == reasonOld {
		return status.Error(codes.Unknown, status.Convert(answer).Message())
	}
	return err
}

// lockService is etcd's Lock. It carries out the recipe of etcd's client for mutexes.
type lockService struct {
	v3lockpb.UnimplementedLockServer
	*API
}

func (l *lockService) Lock(ctx context.Context, r *v3lockpb.LockRequest) (*v3lockpb.LockResponse, error) {
	if err := l.checkSize(r); err != nil {
		return nil, err
	}
	won, err := l.claim(ctx, claimRequest{name: r.Name, lease: r.Lease, lost: errSessionExpired})
	if err != nil {
		return nil, ofRecipe(err)
	}
	return &v3lockpb.LockResponse{Header: header(won.now), Key: won.key}, nil
}

// Unlock deletes any key that it is given, as etcd does.
func (l *lockService) Unlock(ctx context.Context, r *v3lockpb.UnlockRequest) (*v3lockpb.UnlockResponse, error) {
	if len(r.Key) == 0 {
		return nil, keyspace.ErrEmptyKey
	}
	if err := l.checkSize(r); err != nil {
		return nil, err
	}
	h, res, err := l.cfg.Member.DeleteRange(ctx, keyspace.DeleteRequest{Key: r.Key})
	if err != nil {
		return nil, ofRecipe(err)
	}
	return &v3lockpb.UnlockResponse{Header: headerAt(h, res.Revision)}, nil
}
