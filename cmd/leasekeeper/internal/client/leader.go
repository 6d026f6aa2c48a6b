package client

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// leaderPause is the time between two tries of a request that finds no leader.
const leaderPause = 100 * time.Millisecond

// awaitLeader makes a call, and makes it again while the cluster has no leader for it, until the call's time is over. A server
// waits for a leader for a second only, and an election on a busy machine can take longer. It returns the last answer then,
// which says more than that the time is over.
func awaitLeader(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, limited := ctx.Deadline(); !limited {
		return invoke(ctx, method, req, reply, conn, options...)
	}
	for {
		err := invoke(ctx, method, req, reply, conn, options...)
		if !lacksLeader(err) {
			return err
		}
		pause := time.NewTimer(leaderPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// lacksLeader reports whether an error says that no leader has seen the request, so that it has changed nothing.
func lacksLeader(err error) bool {
	if text := rpctypes.Error(err); errors.Is(text, rpctypes.ErrNoLeader) || errors.Is(text, rpctypes.ErrLeaderChanged) {
		return true
	}
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if ok && info.Reason == leasekeeperv1.ErrorReason_UNAVAILABLE.String() {
			return true
		}
	}
	return false
}
