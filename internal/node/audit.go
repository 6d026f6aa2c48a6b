package node

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// uses returns the version that the log uses as soon as all members understand it; 0 for none.
func (c *Config) uses() gate.Version {
	if c.Audit {
		return gate.Access
	}
	return 0
}

// Audit reads a page of the audit log, which has every act that was acknowledged before. recording is false if the log has
// not begun; see [Config].Audit.
func (n *Node) Audit(ctx context.Context, q audit.Query) (page audit.Page, recording bool, err error) {
	if _, err := n.readHeader(ctx, false); err != nil {
		return audit.Page{}, false, err
	}
	_, release, err := n.use(ctx)
	if err != nil {
		return audit.Page{}, false, err
	}
	defer release()
	recording = n.VersionInUse() >= gate.Access
	err = n.store.ReadAlongside(func() (err error) {
		snapshot := n.db.NewSnapshot()
		page, err = audit.Read(snapshot, q)
		return errors.Join(err, snapshot.Close())
	})
	return page, recording, err
}
