package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// withReason returns an error of leasekeeper.v1.
func withReason(t *testing.T, code codes.Code, reason leasekeeperv1.ErrorReason) error {
	t.Helper()
	s, err := status.New(code, "try again").WithDetails(&errdetails.ErrorInfo{Reason: reason.String()})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// A request is made again only if it has certainly changed nothing because no leader has seen it.
func TestRequestIsMadeAgainWhileThereIsNoLeader(t *testing.T) {
	for what, c := range map[string]struct {
		answer error
		again  bool
	}{
		"no error":        {nil, false},
		"no leader":       {rpctypes.ErrGRPCNoLeader, true},
		"leader changed":  {rpctypes.ErrGRPCLeaderChanged, true},
		"unavailable":     {withReason(t, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE), true},
		"unknown outcome": {withReason(t, codes.DeadlineExceeded, leasekeeperv1.ErrorReason_UNKNOWN_OUTCOME), false},
		"timed out":       {rpctypes.ErrGRPCTimeout, false},
		"no connection":   {status.Error(codes.Unavailable, "connection error"), false},
		"denied":          {rpctypes.ErrGRPCPermissionDenied, false},
		"no status":       {errors.New("no leader"), false},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			calls := 0
			err := awaitLeader(ctx, "/m", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				if calls++; calls == 1 {
					return c.answer
				}
				return nil
			})
			if c.again && (calls != 2 || err != nil) || !c.again && (calls != 1 || err != c.answer) {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

// When the time is over, the last answer is returned. Without a limit of time, the first one is.
func TestLastAnswerIsReturnedWhenTheTimeIsOver(t *testing.T) {
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for what, ctx := range map[string]context.Context{"no time": ended, "no limit": t.Context()} {
		calls := 0
		err := awaitLeader(ctx, "/m", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			calls++
			return rpctypes.ErrGRPCNoLeader
		})
		if calls != 1 || err != rpctypes.ErrGRPCNoLeader {
			t.Errorf("%s: %d calls, %v", what, calls, err)
		}
	}
}
