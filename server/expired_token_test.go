package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
)

// withToken repeats a call, each time with a fresh token, until the server has identified the user before the token ended. It
// returns the context of that call.
func (f *front) withToken(user string, call func(context.Context) error) (used context.Context) {
	f.t.Helper()
	eventually(f.t, "a token lasts until the server has identified "+user, func() bool {
		used = f.as(user)
		err := call(used)
		if status.Code(err) == codes.Unauthenticated {
			return false
		}
		wantOK(f.t, err)
		return true
	})
	return used
}

// holdsFirst opens a stream of Hold for alice and claims a name on it. It returns the context of the stream.
func (f *front) holdsFirst(id, name string, lease int64, want leasekeeperv1.HoldAnswer_State) (c *holdClient, used context.Context) {
	f.t.Helper()
	used = f.withToken("alice", func(ctx context.Context) error {
		c = f.holderWith(ctx, id)
		c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim(name, lease)}})
		resp, err := c.stream.Recv()
		if err != nil {
			return err
		}
		wantEqual(f.t, "answers", len(resp.Answers), 1)
		if a := resp.Answers[0]; a.State != want {
			return status.Error(codes.Code(a.Code), a.String())
		}
		return nil
	})
	return c, used
}

// A token that ends by its time ends no stream. Renewals and claims go on over the streams that were opened with it, and a waiting
// claim gets its turn. New requests with the token are refused.
func TestStreamsOutliveAnExpiredToken(t *testing.T) {
	const ttl = time.Second
	secret := filepath.Join(t.TempDir(), "secret")
	wantOK(t, os.WriteFile(secret, []byte(strings.Repeat("s", 32)), 0o600))
	for kind, option := range map[string]string{"simple": "simple", "jwt": "jwt,sign-method=HS256,ttl=" + ttl.String() + ",priv-key=" + secret} {
		t.Run(kind, func(t *testing.T) {
			cfg := anyPort()
			cfg.AuthToken, cfg.Logins = option, NewLogins(ttl)
			f := startConfiguredWithUsers(t, cfg)
			f.addUsers()
			_, err := f.node.ChangeAccess(node.As(f.ctx(), access.Caller{User: "root", Revision: f.node.Access().Revision()}),
				access.GrantRight{Role: "half", Right: access.Right{Prefix: "jobs/", Rights: access.Hold}})
			wantOK(t, err)

			var ended [4]context.Context
			var holder, waiter *holdClient
			holder, ended[0] = f.holdsFirst("first", "jobs/a", 81, leasekeeperv1.HoldAnswer_HELD)
			waiter, ended[1] = f.holdsFirst("second", "jobs/a", 82, leasekeeperv1.HoldAnswer_WAITING)
			var renewals leasekeeperv1.Leasekeeper_RenewClient
			number := uint64(0)
			renewMany := func() error {
				number++
				renewals.Send(&leasekeeperv1.RenewRequest{Number: number, Leases: []int64{81, 82}}) // Recv says why it fails
				resp, err := renewals.Recv()
				wantEqual(t, "refused renewals", len(resp.GetRefused()), 0)
				return err
			}
			ended[2] = f.withToken("alice", func(ctx context.Context) (err error) {
				renewals, err = f.names().Renew(ctx)
				wantOK(t, err)
				return renewMany()
			})
			var keepAlive pb.Lease_LeaseKeepAliveClient
			renewOne := func() error {
				keepAlive.Send(&pb.LeaseKeepAliveRequest{ID: 81}) // Recv says why it fails
				resp, err := keepAlive.Recv()
				if err == nil {
					wantEqual(t, "TTL", resp.TTL, 60)
				}
				return err
			}
			ended[3] = f.withToken("alice", func(ctx context.Context) (err error) {
				keepAlive, err = f.lease.LeaseKeepAlive(ctx)
				wantOK(t, err)
				return renewOne()
			})

			// A request with a simple token would prolong it, and a renewal on a stream must not.
			last := time.Now()
			eventually(t, "the time of the tokens is over", func() bool {
				wantOK(t, renewMany())
				wantOK(t, renewOne())
				return time.Since(last) > ttl
			})
			for _, ctx := range ended {
				_, err := f.kv.Range(ctx, &pb.RangeRequest{Key: []byte("a")})
				wantStatus(t, err, rpctypes.ErrGRPCInvalidAuthToken)
			}
			wantOK(t, renewMany())
			wantOK(t, renewOne())
			f.withToken("root", func(ctx context.Context) error {
				resp, err := f.names().Get(ctx, &leasekeeperv1.GetRequest{Name: "jobs/a"})
				if err == nil {
					wantEqual(t, "holder", resp.Info.Holder.GetId(), "first")
				}
				return err
			})
			holder.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{holder.claim("jobs/b", 83)}})
			holder.wants(2, leasekeeperv1.HoldAnswer_HELD)
			holder.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{holder.release("jobs/a", 81)}})
			holder.wants(3, leasekeeperv1.HoldAnswer_RELEASED)
			waiter.wants(1, leasekeeperv1.HoldAnswer_HELD)
		})
	}
}
