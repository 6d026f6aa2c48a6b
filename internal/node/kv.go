package node

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// Txn executes a transaction. A transaction that writes nothing is a read at one revision, on the caller's goroutine.
// Only such a transaction can be serializable, as in Range.
func (n *Node) Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error) {
	// Apply checks this too; checking here saves a log entry for an invalid request.
	if err := keyspace.CheckTxn(req, keyspace.MaxTxnOps); err != nil {
		return replica.Header{}, keyspace.TxnResult{}, err
	}
	if !req.ReadOnly() {
		if req.Bytes() > n.cfg.MaxRequestBytes {
			return replica.Header{}, keyspace.TxnResult{}, replica.ErrTooLarge
		}
		header, result, err := change[keyspace.TxnResult](ctx, n, req)
		if err == nil && result.Dropped {
			err = replica.ErrAnswerDropped
		}
		return header, result, err
	}
	header, err := n.readHeader(ctx, serializable)
	if err != nil {
		return replica.Header{}, keyspace.TxnResult{}, err
	}
	result, err := readKeys(ctx, n, func() (keyspace.TxnResult, error) { return n.store.Txn(ctx, req) })
	if err != nil {
		return replica.Header{}, keyspace.TxnResult{}, err
	}
	header.Revision = max(header.Revision, result.Revision)
	return header, result, nil
}

// readKeys reads the database in a turn of the client. The order matters: a reader that has a turn already holds the
// database, so that each reader that waits for a turn gets one although the member waits to close the database.
func readKeys[T any](ctx context.Context, n *Node, read func() (T, error)) (result T, err error) {
	if err := n.holdDatabase(); err != nil {
		return result, err
	}
	defer n.releaseDatabase()
	endTurn, err := keyspace.TakeTurn(ctx)
	if err != nil {
		return result, err
	}
	defer endTurn()
	return read()
}

// Confirm returns when this member has applied everything that any member had acknowledged before the call.
func (n *Node) Confirm(ctx context.Context) error {
	_, err := n.readHeader(ctx, false)
	return err
}

// readHeader waits for permission to read. The answer must be at least as new as the returned header.
func (n *Node) readHeader(ctx context.Context, serializable bool) (replica.Header, error) {
	if serializable {
		return n.Header(), nil
	}
	id := n.nextID.Add(1)
	effect, err := n.ask(ctx, id, replica.Read{ID: id})
	if err != nil {
		return replica.Header{}, readError(err)
	}
	if reply, ok := effect.(replica.Reply); ok {
		return replica.Header{}, reply.Err
	}
	return effect.(replica.ReadAt).Header, nil
}

// Compact makes revisions below rev unreadable. If physical is set, it returns only after they are removed from the
// database, which may take long.
func (n *Node) Compact(ctx context.Context, rev int64, physical bool) (replica.Header, error) {
	header, _, err := change[replica.Result](ctx, n, entry.Compact{Revision: rev, Physical: physical})
	return header, err
}
