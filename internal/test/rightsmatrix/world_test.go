package rightsmatrix

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/internal/access"
)

// world is a cluster with users, whose passwords are their names: root, half with rights to everything below half/, and bare
// without rights.
type world struct {
	*cluster
	leader  *client // with the certificate of a stranger
	number  atomic.Int64
	through map[string]*member
	tokens  map[string]string // by user
}

func newWorld(t testing.TB, certificates bool) *world {
	t.Helper()
	w := &world{cluster: startCluster(t, certificates), tokens: make(map[string]string)}
	w.through = w.cluster.through()
	w.leader = w.dial(w.through["leader"], "stranger")
	w.number.Store(1000)
	ctx, auth := w.context(), pb.NewAuthClient(w.leader.conn)
	for _, user := range []string{"root", "half", "bare"} {
		_, err := auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: user, Password: user})
		wantOK(t, err)
	}
	_, err := auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	wantOK(t, err)
	_, err = auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "half"})
	wantOK(t, err)
	_, err = auth.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: "half", Perm: &authpb.Permission{
		PermType: authpb.READWRITE, Key: []byte("half/"), RangeEnd: []byte("half0"),
	}})
	wantOK(t, err)
	_, err = w.leader.member.node.ChangeAccess(ctx, access.GrantRight{Role: "half", Right: access.Right{Prefix: "half/", Rights: access.AllRights}})
	wantOK(t, err)
	w.grantHalf()
	for _, key := range []string{"half/there", "other/there"} {
		_, err = pb.NewKVClient(w.leader.conn).Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("1")})
		wantOK(t, err)
	}
	_, err = auth.AuthEnable(ctx, &pb.AuthEnableRequest{})
	wantOK(t, err)
	for _, m := range w.members {
		eventually(t, "every member has enabled access", func() bool { return m.node.Access().Enabled() })
	}
	w.login()
	return w
}

func (w *world) context() context.Context {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	w.t.Cleanup(cancel)
	return ctx
}

// grantHalf gives the user half its role.
func (w *world) grantHalf() {
	w.t.Helper()
	ctx, cancel := w.as("root")
	defer cancel()
	_, err := pb.NewAuthClient(w.leader.conn).UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "half", Role: "half"})
	wantOK(w.t, err)
}

// revokeHalf takes that role away again.
func (w *world) revokeHalf() {
	w.t.Helper()
	ctx, cancel := w.as("root")
	defer cancel()
	_, err := pb.NewAuthClient(w.leader.conn).UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: "half", Role: "half"})
	wantOK(w.t, err)
}

// login gets tokens for users; for all without a name. A JSON Web Token ends with every change of users and roles.
func (w *world) login(users ...string) {
	w.t.Helper()
	if len(users) == 0 {
		users = []string{"root", "half", "bare"}
	}
	for _, user := range users {
		resp, err := pb.NewAuthClient(w.leader.conn).Authenticate(w.context(), &pb.AuthenticateRequest{Name: user, Password: user})
		wantOK(w.t, err)
		w.tokens[user] = resp.Token
	}
	// A member that has not yet applied the last change takes a new JSON Web Token for one that has ended.
	revision := w.leader.member.node.Access().Revision()
	for _, m := range w.members {
		eventually(w.t, "every member has the users of the leader", func() bool { return m.node.Access().Revision() >= revision })
	}
}

// as returns the context of a user's request to the leader.
func (w *world) as(user string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	return withToken(ctx, w.tokens[user]), cancel
}

// things are what the words of requests stand for. Each function makes a new thing of a number.
var things = map[string]func(w *world, number int64) error{
	"$new":          func(*world, int64) error { return nil },
	"$leaseBare":    func(w *world, n int64) error { return w.lease(n) },
	"$leaseHalf":    func(w *world, n int64) error { return w.lease(n, "half/") },
	"$leaseOther":   func(w *world, n int64) error { return w.lease(n, "other/") },
	"$leaseBoth":    func(w *world, n int64) error { return w.lease(n, "half/", "other/") },
	"$held":         func(w *world, n int64) error { return w.claim("half", "half/n", n) },
	"$heldByRoot":   func(w *world, n int64) error { return w.claim("root", "half/n", n) },
	"$heldOther":    func(w *world, n int64) error { return w.claim("root", "other/n", n) },
	"$elected":      func(w *world, n int64) error { return w.elect("half/e", n) },
	"$otherElected": func(w *world, n int64) error { return w.elect("other/e", n) },
}

// lease makes a lease of root with a key below each prefix.
func (w *world) lease(number int64, prefixes ...string) error {
	ctx, cancel := w.as("root")
	defer cancel()
	if _, err := pb.NewLeaseClient(w.leader.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: number, TTL: 600}); err != nil {
		return err
	}
	for _, prefix := range prefixes {
		key := fmt.Sprint(prefix, "k", number)
		if _, err := pb.NewKVClient(w.leader.conn).Put(ctx, &pb.PutRequest{Key: []byte(key), Lease: number}); err != nil {
			return err
		}
	}
	return nil
}

// claim makes a user hold the name of a number, by the lease of that number.
func (w *world) claim(user, prefix string, number int64) error {
	return w.claimFor(user, fmt.Sprint(prefix, number), number, &leasekeeperv1.Holder{Id: user})
}

// claimFor makes a user hold a name, by the lease of a number. The user says who it is.
func (w *world) claimFor(user, name string, lease int64, holder *leasekeeperv1.Holder) error {
	ctx, cancel := w.as(user)
	defer cancel()
	stream, err := leasekeeperv1.NewLeasekeeperClient(w.leader.conn).Acquire(ctx, &leasekeeperv1.AcquireRequest{
		Name: name, Lease: lease, TtlMs: 600_000, Holder: holder,
	})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// elect makes root the leader of the election of a number, by the lease of that number.
func (w *world) elect(prefix string, number int64) error {
	if err := w.lease(number); err != nil {
		return err
	}
	ctx, cancel := w.as("root")
	defer cancel()
	_, err := v3electionpb.NewElectionClient(w.leader.conn).Campaign(ctx, &v3electionpb.CampaignRequest{
		Name: []byte(fmt.Sprint(prefix, number)), Lease: number, Value: []byte("v"),
	})
	return err
}
