package server

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/guard"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// member is what this package uses of a [node.Node]. With this interface, tests can force errors that a healthy node
// does not return.
type member interface {
	clusterNode
	guard.Member
	etcdapi.Member
	namesapi.Member

	// Snapshot makes a copy of the data in Leasekeeper's own format.
	Snapshot(context.Context) (*datadir.Snapshot, error)

	// Incarnation is the number of the data directory.
	Incarnation() uint64

	// Removed is closed when the member knows that it was removed from its cluster.
	Removed() <-chan struct{}
	Done() <-chan struct{}
	Err() error
	// Serving returns nil if the member knows a leader.
	Serving() error
	// CheckReady returns nil if linearizable reads and renewals work through the member.
	CheckReady() error
}

var _ member = (*node.Node)(nil)
