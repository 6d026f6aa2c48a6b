package replica

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/quota"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// recover rebuilds the member from its database: identity, log, leases, keys, and the bindings of keys to leases.
func (r *Replica) recover() (err error) {
	if err = r.identify(); err != nil {
		return err
	}
	if r.instants, err = record.OpenInstants(r.db, r.cfg.Domain, r.cfg.Now); err != nil {
		return err
	}
	r.log = new(raftlog.Log)
	err = r.reload(func(leases keyspace.Leases) (err error) {
		if r.store, err = keyspace.Open(r.db, leases); err == nil {
			r.store.LimitAnswers(keyspace.AnswerLimits{Each: r.cfg.AnswerBytes / writeAnswerShare, All: r.cfg.AnswerBytes})
		}
		return err
	})
	r.term = r.log.HardState().GetTerm()
	return err
}

// reload rebuilds the state in memory from the database. Others hold pointers to the log and the keyspace, so these
// stay the same objects with other contents. openKeys makes the keyspace read its contents.
func (r *Replica) reload(openKeys func(keyspace.Leases) error) error {
	if err := record.FlushLogged(r.db); err != nil {
		return err
	}
	applied := new(logpb.Applied)
	if _, err := record.Load(r.db, record.KeyApplied, applied); err != nil {
		return err
	}
	r.applied = raftlog.Mark{Index: applied.Index, Term: applied.Term}
	stable, err := raftlog.Open(r.db, r.applied.Index, r.cfg.LogStep)
	if err != nil {
		return err
	}
	*r.log = *stable
	r.settled = r.log.HardState().GetCommit()
	if r.terms, err = raftlog.LoadTerms(r.db, r.applied); err != nil {
		return err
	}
	r.log.Show(&r.applied)
	if err := r.recoverMembers(); err != nil {
		return err
	}
	r.names.Reset()
	r.buffer = record.NewBuffer()
	if err := r.recoverVersions(); err != nil {
		return err
	}
	if err := r.recoverLeases(); err != nil {
		return err
	}
	if err := errors.Join(record.RecoverPolicy(r.db, r.access), r.acts.Recover(r.db)); err != nil {
		return err
	}
	if err := openKeys(record.Bindings{Lessor: r.lessor, Attaching: r.renewals.Forget}); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	r.sweeping = true
	if err := record.RecoverNames(r.db, r.names); err != nil {
		return err
	}
	if err := record.RecoverBindings(r.store, r.names, r.lessor); err != nil {
		return err
	}
	return record.CompleteNames(r.db, r.names)
}

// identify reads which member this is, or writes it if the database is new.
func (r *Replica) identify() error {
	identity, err := record.Identify(r.db, record.NewMember{
		ClusterID: r.cfg.ClusterID, MemberID: r.cfg.MemberID, Incarnation: r.cfg.Incarnation, Members: r.cfg.Members, Joins: r.cfg.Joins,
		Promise: r.cfg.Drift.GrantPromise(r.cfg.MasterLease),
	})
	if err != nil {
		return err
	}
	r.identity = Header{ClusterID: identity.ClusterId, MemberID: identity.MemberId}
	r.incarnation = identity.Incarnation
	return nil
}

// recoverLeases rebuilds the lessor. An instant on the disk may lie ahead of this process's clocks. Then those are
// other clocks under the same name: perhaps the directory was copied to another machine together with the boot id. No
// instant on the disk can be compared with them, so the lessor is rebuilt in a new domain.
func (r *Replica) recoverLeases() error {
	if err := r.rebuildLessor(); err != nil || !r.instants.Ahead() {
		return err
	}
	fresh, err := r.instants.NewDomain(r.db, r.cfg.Domain, r.now)
	if err != nil {
		return err
	}
	r.instants = fresh
	return r.rebuildLessor()
}

func (r *Replica) rebuildLessor() error {
	r.instants.Read(r.now)
	r.quotas = quota.Ledger{}
	var failed, err error
	if r.heldOff.Until, err = record.LoadHoldOff(r.db, r.instants, r.now); err != nil {
		return err
	}
	records := func(yield func(lessor.Record) bool) {
		var senseless error
		failed = record.Leases(r.db, func(m *logpb.Lease) bool {
			lease, err := r.instants.LeaseOf(m)
			senseless = err
			r.quotas.Own(lease.ID, string(m.Creator), m.Claimed)
			if m.Claimed {
				r.names.RestoreClaim(lease.ID, ownership.ClaimRecord{Name: string(m.Name), Priority: m.Priority, Overtaken: m.Overtaken, Creator: string(m.Creator)})
			}
			return senseless == nil && yield(lease)
		})
		failed = errors.Join(failed, senseless)
	}
	leaderships, term, err := r.instants.Leaderships(r.db)
	if err != nil {
		return err
	}
	r.leadershipTerm = max(r.leadershipTerm, term)
	r.lessor = lessor.New(lessor.Config{MaxExpiries: intake.MaxExpiries, NoEndBefore: r.heldOff.Until})
	r.lessor.SetRangeDeleter(func() lessor.TxnDelete { return leaseKeys{r} })
	r.lessor.SetCheckpointer(r.checkpoint)
	r.lessor.Recover(iter.Seq[lessor.Record](records), leaderships)
	return failed
}

func sortedIDs[V any](m map[lessor.ID]V) []lessor.ID {
	return slices.Sorted(maps.Keys(m))
}
