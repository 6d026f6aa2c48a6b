package rightsmatrix

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// rootRevoked takes the role root from half, which has no other role: see makeRoot.
var rootRevoked = withdrawal{"the role root was revoked",
	func(w *world) {
		w.manage(func(ctx context.Context, auth pb.AuthClient, _ leasekeeperv1.LeasekeeperClient) error {
			return errorOf(auth.UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: "half", Role: "root"}))
		})
	},
	func(w *world) {
		w.manage(func(ctx context.Context, auth pb.AuthClient, _ leasekeeperv1.LeasekeeperClient) error {
			return errorOf(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "half", Role: "root"}))
		})
	},
}

// makeRoot gives half the role root in place of its own role.
func (w *world) makeRoot() {
	w.t.Helper()
	rootRevoked.giveBack(w)
	w.revokeHalf()
	w.login()
}

// onlyRoot returns the requests that half may not make, and root may.
func onlyRoot(rows []*row) (only []*row) {
	for _, r := range rows {
		if isRefusal(r.want["half"]) && !isRefusal(r.want["root"]) && r.want["root"] != "-" {
			only = append(only, r)
		}
	}
	return only
}

// TestUserThatLosesTheRoleRootHasNoRights makes half a second root, whose requests and open streams succeed as those of root.
// Then it takes the role away: the same requests and streams of the same token receive what those of a user without rights do.
func TestUserThatLosesTheRoleRootHasNoRights(t *testing.T) {
	w := newWorld(t, false)
	methods := methodsOf(t, w.leader.conn)
	w.makeRoot()
	rows := onlyRoot(readTable(t))
	before := w.attempts(t, rows, methods, "half")
	for _, a := range before {
		a.column = "root" // that is what half counts as
	}
	w.judge(t, before, methods, false)
	after := w.attempts(t, rows, methods, "half")
	rootRevoked.take(w)
	w.judge(t, after, methods, true)
	t.Logf("%d requests before and after the loss of the role root", len(before))
	rootRevoked.giveBack(w)
	w.mustPlayAll(t, methods, rootRevoked)
}
