package server

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// clientNaming is a member that receives each bulk command with the name of its client, because clients take turns with
// bulk commands. The client of a command that another member forwards is the one that sent it to that member.
type clientNaming struct{ member }

func (m clientNaming) Put(ctx context.Context, req keyspace.PutRequest) (replica.Header, keyspace.PutResult, error) {
	return m.member.Put(withClient(ctx, req), req)
}

func (m clientNaming) DeleteRange(ctx context.Context, req keyspace.DeleteRequest) (replica.Header, keyspace.DeleteResult, error) {
	return m.member.DeleteRange(withClient(ctx, req), req)
}

func (m clientNaming) Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error) {
	return m.member.Txn(withClient(ctx, req), req, serializable)
}

// withClient names the client of a bulk command. Another command needs no name, so it costs no allocation.
func withClient(ctx context.Context, c entry.Command) context.Context {
	if !entry.IsBulk(c) {
		return ctx
	}
	return node.WithClient(ctx, string(admission.IdentityOf(ctx)))
}
