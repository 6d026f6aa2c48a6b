package node

import (
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// VersionInUse returns the version that the log uses. Members that do not know it cannot join.
func (n *Node) VersionInUse() gate.Version { return gate.Version(n.inUse.Load()) }

// markVersion marks the data directory with the version that the log uses, before anything that rests on it leaves this
// member. The caller holds owner.
func (n *Node) markVersion() error {
	inUse := n.replica.Versions().InUse
	if inUse <= n.VersionInUse() {
		return nil
	}
	if err := datadir.MarkInUse(n.cfg.FS, n.cfg.Dir, inUse); err != nil {
		return err
	}
	n.inUse.Store(uint32(inUse))
	return nil
}
