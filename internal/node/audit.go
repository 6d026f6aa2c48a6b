package node

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// Audit reads a page of the audit log, which has every act that was acknowledged before. recording is false if acts are not
// recorded yet; see [Config].Audit.
func (n *Node) Audit(ctx context.Context, q audit.Query) (page audit.Page, recording bool, err error) {
	if _, err := n.readHeader(ctx, false); err != nil {
		return audit.Page{}, false, err
	}
	_, release, err := n.use(ctx)
	if err != nil {
		return audit.Page{}, false, err
	}
	defer release()
	recording = n.cfg.Audit || n.VersionInUse() >= gate.Access
	err = n.store.ReadAlongside(func() (err error) {
		snapshot := n.db.NewSnapshot()
		page, err = audit.Read(snapshot, q)
		return errors.Join(err, snapshot.Close())
	})
	return page, recording, err
}
