package entry

import (
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

func TestCommandsBelongToGates(t *testing.T) {
	for _, c := range []struct {
		op   Command
		want gate.Version
	}{
		{ownership.Claim{}, 0}, {ownership.Claim{Priority: -1}, gate.Marks}, {ownership.Prefer{}, gate.Marks}, {ownership.RaiseMark{}, gate.Marks},
		{txnOf(keyspace.UsualTxnOps), 0}, {txnOf(keyspace.UsualTxnOps + 1), gate.LargeTxns},
		{keyspace.TxnRequest{Success: []keyspace.TxnOp{txnOf(keyspace.UsualTxnOps)}}, gate.LargeTxns},
		{ownership.Finish{}, gate.Marks}, {ownership.Release{}, 0}, {Grant{}, 0}, {access.Enable{}, gate.Access}, {access.Login{}, gate.Access},
	} {
		if got := Gate(c.op); got != c.want {
			t.Errorf("%+v belongs to version %d", c.op, got)
		}
	}
}

// txnOf returns a transaction with that many operations.
func txnOf(ops int) keyspace.TxnRequest {
	return keyspace.TxnRequest{Failure: slices.Repeat([]keyspace.TxnOp{keyspace.RangeRequest{Key: []byte("k")}}, ops)}
}

// An entry carries what the leader states and what it needs. What all members know that read such fields is not written.
func TestEntryCarriesVersions(t *testing.T) {
	claim, finish := Prepare(ownership.Claim{Lease: 7, Name: "n"}, access.Caller{}), Prepare(ownership.Finish{Lease: 7, Name: "n"}, access.Caller{})
	ofUser := Prepare(ownership.Claim{Lease: 7, Name: "n"}, access.Caller{User: "u", Revision: 3})
	for _, c := range []struct {
		header        Header
		commands      []*Prepared
		states, needs gate.Version
	}{
		{Header{Sequence: 5}, []*Prepared{&claim}, 0, 0},
		{Header{Sequence: 5, States: 2}, nil, 2, 0},
		{Header{Sequence: 5, Needs: 3}, []*Prepared{&claim}, 0, 3},
		{Header{Sequence: 5, States: 3, Needs: 3}, []*Prepared{&claim, &finish}, 3, 3},
		{Header{Sequence: 5}, []*Prepared{&claim, &ofUser}, 0, gate.Access}, // earlier members would not check the caller
		{Header{Sequence: 5}, []*Prepared{&finish}, 0, 0},                   // members that know the command read its gate from it
	} {
		var p Payload
		if err := p.Decode(New(c.header, slices.Values(c.commands))); err != nil {
			t.Fatal(err)
		}
		if p.Sequence != 5 || p.States != c.states || p.Needs != c.needs || len(p.Commands) != len(c.commands) {
			t.Errorf("%+v: %+v", c.header, p)
		}
	}
}
