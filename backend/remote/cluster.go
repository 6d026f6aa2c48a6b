package remote

import (
	"context"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

// Members returns the state of each member of the server's cluster, in the order of the configuration. A single server is
// the only member. The error is a [*backend.UnsupportedError] if the server has no such request.
func (b *Backend) Members(ctx context.Context) ([]*leasekeeperv1.Member, error) {
	var resp *leasekeeperv1.ListMembersResponse
	err := b.inspect(ctx, "listing the members", func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = leasekeeperv1.NewMembersClient(w.conn).List(ctx, &leasekeeperv1.ListMembersRequest{}, options...)
		return err
	})
	return resp.GetMembers(), err
}

// AuditLog returns a page of the server's audit log, the oldest records first. While access is enabled, the user needs the
// role root.
func (b *Backend) AuditLog(ctx context.Context, r *leasekeeperv1.AuditRequest) (*leasekeeperv1.AuditResponse, error) {
	var resp *leasekeeperv1.AuditResponse
	err := b.inspect(ctx, "reading the audit log", func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.names.Audit(ctx, r, options...)
		return err
	})
	return resp, err
}

// AttachedKeys returns the keys of etcd's API that are attached to the lease which holds a name, in their order: none for a
// free name. A user needs permission to read all of them.
func (b *Backend) AttachedKeys(ctx context.Context, name string) ([]string, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	var keys []string
	err := b.inspect(ctx, "asking for the keys attached to "+name, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		keys = nil
		resp, err := w.names.Get(ctx, &leasekeeperv1.GetRequest{Name: b.root + name}, options...)
		if err != nil || !resp.GetInfo().GetHeld() {
			return err
		}
		lease, err := pb.NewLeaseClient(w.conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: resp.Info.Lease, Keys: true}, options...)
		for _, key := range lease.GetKeys() {
			keys = append(keys, string(key))
		}
		return err
	})
	slices.Sort(keys)
	return keys, err
}

// inspect makes a request that changes nothing and is about no name.
func (b *Backend) inspect(ctx context.Context, what string, call func(context.Context, *endpoint, ...grpc.CallOption) error) error {
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if o := b.endpoints.Ask(ctx, unary(call)); o.Err != nil {
		return lacking(o.Err, what, o.Read(what))
	}
	return nil
}

// TransferHeld makes the next waiting claim of a name the holder, in one step, if the name has that token. A user needs the
// right to administer the name. The former holder finds out at its next renewal. The error is that of [Backend.Transfer].
func (b *Backend) TransferHeld(ctx context.Context, name string, t backend.Token) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	what := "transferring " + name
	info, o := b.nameInfo(ctx, name)
	switch {
	case o.Err != nil:
		return o.Read(what)
	case !info.GetHeld() || backend.Token(info.GetToken()) != t:
		return fmt.Errorf("%w: %s: token %d does not hold it", backend.ErrLost, what, t)
	}
	l := &lease{b: b, wire: b.root + name, id: info.Lease}
	l.newest.Store(uint64(t))
	return b.Transfer(ctx, l)
}
