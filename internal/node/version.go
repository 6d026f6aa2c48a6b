package node

import (
	"context"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
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

// openReplica opens the replica. In a cluster it also compares the program with the one that ran the member last.
func (n *Node) openReplica(ctx context.Context, config replica.Config) error {
	last, founded, err := record.LastProgram(n.db)
	if err == nil {
		n.replica, err = replica.Open(config)
	}
	if err != nil {
		return datadir.Explain(n.cfg.Dir, err)
	}
	if n.alone() || n.cfg.Program == "" || n.cfg.Program == last {
		return nil
	}
	return n.changeProgram(ctx, founded)
}

// changeProgram writes down that this program runs the member from now on. If another one did before, it first waits until
// every promise has ended that the other one has made for the member. Nothing of the member runs meanwhile: the other program
// may have promised what this one does not know. The wait is the vote hold-off after the start, so it delays no vote.
func (n *Node) changeProgram(ctx context.Context, another bool) error {
	if another {
		wait := n.replica.Cluster(clock.Now()).HoldOff
		n.log.Info("another program ran this member before, so it stays down until the promises of that program have ended", "wait", wait)
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := record.PutProgram(n.db, n.cfg.Program); err != nil {
		return datadir.Explain(n.cfg.Dir, err)
	}
	return nil
}
