package server

import (
	"context"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// member is what this package uses of a [node.Node]. It exists so that tests can force errors that a
// healthy node does not give.
type member interface {
	leading

	Done() <-chan struct{}
	Err() error
	// Serving returns nil if the member knows a leader.
	Serving() error
	// CheckReady returns nil if linearizable reads and renewals work through the member.
	CheckReady() error
	Header() replica.Header
	Status(context.Context) (node.Status, error)

	Put(context.Context, keyspace.PutRequest) (replica.Header, keyspace.PutResult, error)
	DeleteRange(context.Context, keyspace.DeleteRequest) (replica.Header, keyspace.DeleteResult, error)
	Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error)
	Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error)
	Compact(ctx context.Context, rev int64, physical bool) (replica.Header, error)

	Grant(context.Context, lessor.ID, time.Duration) (replica.Header, replica.Granted, error)
	Revoke(context.Context, lessor.ID) (replica.Header, error)
	Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error
	TimeToLive(ctx context.Context, id lessor.ID, items bool) (replica.Header, replica.LeaseStatus, error)
	Leases(context.Context) (replica.Header, []lessor.End, error)

	Claim(context.Context, replica.Claim) (replica.Claimed, error)
	Place(ctx context.Context, name string, lease lessor.ID) (replica.Place, error)
	Release(ctx context.Context, name string, lease lessor.ID) (bool, error)
	RevokeName(context.Context, replica.RevokeName) (replica.RevokedName, error)
	Transfer(ctx context.Context, name string, lease lessor.ID) (token int64, err error)
	Pin(ctx context.Context, name, reason string) error
	Unpin(ctx context.Context, name string) error
	Names(ctx context.Context, names []string) (replica.NameStates, error)
	HeldNames(ctx context.Context, prefix, after string, limit int) (names []string, index uint64, err error)
	History(ctx context.Context, name string) ([]replica.Tenancy, error)
	WatchNames(prefix string) *node.NameWatch
	WatchClaim(lease lessor.ID) *node.NameWatch
	WatchClaims(wake chan struct{}) *node.NameWatch
	Hold(ctx context.Context, watch *node.NameWatch, ops []replica.Op, answer func([]node.HoldAnswer)) error

	NewWatchStream(keyspace.StreamLimits) *keyspace.Stream

	Shortage() replica.Shortage
	OrderShortage(ctx context.Context, raised bool) (before, after replica.Shortage, err error)
	Hash(ctx context.Context, revision int64) (replica.Header, keyspace.HashResult, error)
	Defragment(context.Context) error
	Snapshot(context.Context) (*datadir.Snapshot, error)
}

var _ member = (*node.Node)(nil)
