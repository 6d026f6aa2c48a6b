package entry

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// messageOf returns a command as a protobuf message. It panics for a type outside the closed set.
func messageOf(c Command) *logpb.Command {
	switch c := c.(type) {
	case keyspace.PutRequest:
		return &logpb.Command{Op: &logpb.Command_Put{Put: putMessage(c)}}
	case keyspace.DeleteRequest:
		return &logpb.Command{Op: &logpb.Command_DeleteRange{DeleteRange: deleteMessage(c)}}
	case keyspace.TxnRequest:
		return &logpb.Command{Op: &logpb.Command_Txn{Txn: txnMessage(c)}}
	case Compact:
		return &logpb.Command{Op: &logpb.Command_Compact{Compact: &logpb.Compact{Revision: c.Revision}}}
	case Grant:
		return &logpb.Command{Op: &logpb.Command_Grant{Grant: &logpb.Grant{Id: int64(c.Lease), TtlNs: int64(c.TTL)}}}
	case Revoke:
		return &logpb.Command{Op: &logpb.Command_Revoke{Revoke: &logpb.Revoke{Id: int64(c.Lease)}}}
	case Expire:
		return &logpb.Command{Op: &logpb.Command_Expire{Expire: expireMessage(c)}}
	case Checkpoint:
		return &logpb.Command{Op: &logpb.Command_Checkpoint{Checkpoint: checkpointMessage(c)}}
	}
	if m := nameMessage(c); m != nil {
		return m
	}
	if c, ok := c.(access.Command); ok {
		return &logpb.Command{Op: &logpb.Command_Access{Access: accessMessage(c)}}
	}
	panic(fmt.Sprintf("entry: unknown command %T", c))
}

// commandOf returns the command of a message, or nil if this version does not know it.
func commandOf(m *logpb.Command) Command {
	switch op := m.Op.(type) {
	case *logpb.Command_Put:
		return putRequest(op.Put)
	case *logpb.Command_DeleteRange:
		return deleteRequest(op.DeleteRange)
	case *logpb.Command_Txn:
		return txnRequest(op.Txn)
	case *logpb.Command_Compact:
		return Compact{Revision: op.Compact.GetRevision()}
	case *logpb.Command_Grant:
		return Grant{Lease: lessor.ID(op.Grant.GetId()), TTL: time.Duration(op.Grant.GetTtlNs())}
	case *logpb.Command_Revoke:
		return Revoke{Lease: lessor.ID(op.Revoke.GetId())}
	case *logpb.Command_Expire:
		return expireOf(op.Expire)
	case *logpb.Command_Checkpoint:
		return checkpointOf(op.Checkpoint)
	case *logpb.Command_Access:
		return accessOf(op.Access)
	}
	return nameCommand(m)
}

// nameMessage is messageOf for commands on names. It returns nil for other commands.
func nameMessage(c Command) *logpb.Command {
	switch c := c.(type) {
	case ownership.Claim:
		m := &logpb.Claim{Id: int64(c.Lease), TtlNs: int64(c.TTL), Name: []byte(c.Name), Holder: c.Holder, Wait: c.Wait, Priority: c.Priority}
		if c.Priority != 0 {
			return &logpb.Command{Op: &logpb.Command_RankedClaim{RankedClaim: m}}
		}
		return &logpb.Command{Op: &logpb.Command_Claim{Claim: m}}
	case ownership.Prefer:
		return &logpb.Command{Op: &logpb.Command_Prefer{Prefer: &logpb.Prefer{Name: []byte(c.Name), Id: int64(c.Lease)}}}
	case ownership.Release:
		return &logpb.Command{Op: &logpb.Command_Release{Release: &logpb.Release{Name: []byte(c.Name), Id: int64(c.Lease)}}}
	case ownership.Revoke:
		return &logpb.Command{Op: &logpb.Command_RevokeName{RevokeName: &logpb.RevokeName{
			Name: []byte(c.Name), Token: c.Token, Note: []byte(c.Note), Now: c.Now,
		}}}
	case ownership.Transfer:
		return &logpb.Command{Op: &logpb.Command_Transfer{Transfer: &logpb.Transfer{Name: []byte(c.Name), Id: int64(c.Lease)}}}
	case ownership.Finish:
		return &logpb.Command{Op: &logpb.Command_Finish{Finish: &logpb.Finish{
			Name: []byte(c.Name), Id: int64(c.Lease), Token: c.Token, Tick: []byte(c.Tick), HoldNs: int64(c.Hold),
		}}}
	case ownership.RaiseMark:
		return &logpb.Command{Op: &logpb.Command_RaiseMark{RaiseMark: &logpb.RaiseMark{
			Name: []byte(c.Name), Id: int64(c.Lease), Token: c.Token, Tick: []byte(c.Tick),
		}}}
	case ownership.Pin:
		return &logpb.Command{Op: &logpb.Command_Pin{Pin: &logpb.Pin{Name: []byte(c.Name), Reason: []byte(c.Reason)}}}
	case ownership.Unpin:
		return &logpb.Command{Op: &logpb.Command_Unpin{Unpin: &logpb.Unpin{Name: []byte(c.Name)}}}
	}
	return nil
}

// nameCommand is commandOf for commands on names.
func nameCommand(m *logpb.Command) Command {
	switch op := m.Op.(type) {
	case *logpb.Command_Claim:
		return claimOf(op.Claim)
	case *logpb.Command_RankedClaim:
		claim := claimOf(op.RankedClaim)
		claim.Priority = op.RankedClaim.GetPriority()
		return claim
	case *logpb.Command_Prefer:
		return ownership.Prefer{Name: string(op.Prefer.GetName()), Lease: lessor.ID(op.Prefer.GetId())}
	case *logpb.Command_Release:
		return ownership.Release{Name: string(op.Release.GetName()), Lease: lessor.ID(op.Release.GetId())}
	case *logpb.Command_RevokeName:
		m := op.RevokeName
		return ownership.Revoke{Name: string(m.GetName()), Token: m.GetToken(), Note: string(m.GetNote()), Now: m.GetNow()}
	case *logpb.Command_Transfer:
		return ownership.Transfer{Name: string(op.Transfer.GetName()), Lease: lessor.ID(op.Transfer.GetId())}
	case *logpb.Command_Finish:
		m := op.Finish
		if isTick(m.GetTick()) {
			return ownership.Finish{
				Name: string(m.GetName()), Lease: lessor.ID(m.GetId()), Token: m.GetToken(), Tick: string(m.GetTick()), Hold: time.Duration(m.GetHoldNs()),
			}
		}
	case *logpb.Command_RaiseMark:
		m := op.RaiseMark
		if len(m.GetTick()) > 0 && isTick(m.GetTick()) {
			return ownership.RaiseMark{Name: string(m.GetName()), Lease: lessor.ID(m.GetId()), Token: m.GetToken(), Tick: string(m.GetTick())}
		}
	case *logpb.Command_Pin:
		return ownership.Pin{Name: string(op.Pin.GetName()), Reason: string(op.Pin.GetReason())}
	case *logpb.Command_Unpin:
		return ownership.Unpin{Name: string(op.Unpin.GetName())}
	}
	return nil
}

func claimOf(m *logpb.Claim) ownership.Claim {
	return ownership.Claim{
		Lease: lessor.ID(m.GetId()), TTL: time.Duration(m.GetTtlNs()), Name: string(m.GetName()), Holder: m.GetHolder(), Wait: m.GetWait(),
	}
}

// isTick reports whether a text is that of a tick, or empty.
func isTick(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	_, err := backend.ParseTick(string(text))
	return err == nil
}

func expireMessage(c Expire) *logpb.Expire {
	m := &logpb.Expire{Term: c[0].Term, DecidedAt: uint64(c[0].DecidedAt)}
	for _, e := range c {
		if e.Term != m.Term || uint64(e.DecidedAt) != m.DecidedAt {
			panic(fmt.Sprintf("entry: expiries %v and %v were not decided together", c[0], e))
		}
		m.Leases = append(m.Leases, refMessage(e.Ref))
	}
	return m
}

func expireOf(m *logpb.Expire) Expire {
	c := make(Expire, len(m.GetLeases()))
	for i, lease := range m.GetLeases() {
		c[i] = lessor.Expiry{Ref: ref(lease), Term: m.GetTerm(), DecidedAt: lessor.Position(m.GetDecidedAt())}
	}
	return c
}

func checkpointMessage(c Checkpoint) *logpb.Checkpoint {
	m := new(logpb.Checkpoint)
	for _, quiet := range c.Quiet {
		m.Term, m.DecidedAt = quiet.Term, uint64(quiet.DecidedAt)
		if first := c.Quiet[0]; quiet.Term != first.Term || quiet.DecidedAt != first.DecidedAt {
			panic(fmt.Sprintf("entry: checkpoints %v and %v were not decided together", first, quiet))
		}
		m.Quiet = append(m.Quiet, &logpb.Remaining{Lease: refMessage(quiet.Ref), RemainingNs: int64(quiet.Remaining)})
	}
	for _, cleared := range c.Cleared {
		m.Term = cleared.Term
		m.Cleared = append(m.Cleared, refMessage(cleared.Ref))
	}
	return m
}

func checkpointOf(m *logpb.Checkpoint) Checkpoint {
	c := Checkpoint{Quiet: make([]lessor.Checkpoint, len(m.GetQuiet())), Cleared: make([]lessor.Cleared, len(m.GetCleared()))}
	for i, quiet := range m.GetQuiet() {
		c.Quiet[i] = lessor.Checkpoint{
			Ref: ref(quiet.GetLease()), Term: m.GetTerm(), DecidedAt: lessor.Position(m.GetDecidedAt()),
			Remaining: time.Duration(quiet.GetRemainingNs()),
		}
	}
	for i, cleared := range m.GetCleared() {
		c.Cleared[i] = lessor.Cleared{Ref: ref(cleared), Term: m.GetTerm()}
	}
	return c
}

func refMessage(r lessor.Ref) *logpb.LeaseRef {
	return &logpb.LeaseRef{Id: int64(r.ID), Generation: uint64(r.Generation)}
}

func ref(m *logpb.LeaseRef) lessor.Ref {
	return lessor.Ref{ID: lessor.ID(m.GetId()), Generation: lessor.Generation(m.GetGeneration())}
}
