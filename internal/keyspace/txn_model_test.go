package keyspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The model's transaction, written from the rules and not from the program.

// txn executes a transaction on the newest state, or changes nothing.
func (m *model) txn(req TxnRequest) (res TxnResult, err error) {
	if err := modelCheck(req); err != nil {
		return TxnResult{}, err
	}
	before := m.current()
	path := flatten(before, req)
	for _, op := range path {
		if err := m.wouldFail(before, op); err != nil {
			return TxnResult{}, err
		}
	}
	m.request(func(state map[string]KV, rev int64) { res = m.run(before, state, rev, req) })
	return res, nil
}

// branch returns the operations that a transaction executes.
func branch(before map[string]KV, req TxnRequest) (bool, []TxnOp) {
	for _, c := range req.Compare {
		if !modelHolds(before, c) {
			return false, req.Failure
		}
	}
	return true, req.Success
}

// flatten returns all operations to execute, without nested transactions.
func flatten(before map[string]KV, req TxnRequest) (all []TxnOp) {
	_, ops := branch(before, req)
	for _, op := range ops {
		if nested, ok := op.(TxnRequest); ok {
			all = append(all, flatten(before, nested)...)
		} else {
			all = append(all, op)
		}
	}
	return all
}

func modelHolds(state map[string]KV, c Compare) bool {
	var kvs []KV
	for _, kv := range state {
		if within(kv.Key, c.Key, c.End) {
			kvs = append(kvs, kv)
		}
	}
	if len(kvs) == 0 {
		if c.Target == CompareValue {
			return false
		}
		kvs = []KV{{}}
	}
	return !slices.ContainsFunc(kvs, func(kv KV) bool {
		number := map[CompareTarget]int64{
			CompareVersion: kv.Version, CompareCreate: kv.CreateRevision, CompareMod: kv.ModRevision, CompareLease: kv.Lease,
		}
		order := cmp.Compare(number[c.Target], c.Number)
		if c.Target == CompareValue {
			order = bytes.Compare(kv.Value, c.Value)
		}
		return !map[CompareResult]bool{
			CompareEqual: order == 0, CompareNotEqual: order != 0, CompareLess: order < 0, CompareGreater: order > 0,
		}[c.Result]
	})
}

func (m *model) wouldFail(before map[string]KV, op TxnOp) error {
	switch op := op.(type) {
	case RangeRequest:
		switch {
		case op.Revision > m.lastRevision():
			return ErrFutureRevision
		case op.Revision < 0, op.Revision > 0 && op.Revision < m.compact:
			return ErrCompacted
		}
	case PutRequest:
		events := m.events
		_, err := m.put(maps.Clone(before), 0, op)
		m.events = events
		return err
	}
	return nil
}

// run executes operations that are known to succeed.
func (m *model) run(before, state map[string]KV, rev int64, req TxnRequest) (res TxnResult) {
	var ops []TxnOp
	res.Succeeded, ops = branch(before, req)
	for _, op := range ops {
		switch op := op.(type) {
		case RangeRequest:
			at := state
			if op.Revision > 0 {
				at = m.states[op.Revision]
			}
			res.Results = append(res.Results, rangeState(at, op, m.reached(rev)))
		case PutRequest:
			prev, _ := m.put(state, rev, op)
			if !op.PrevKV {
				prev = nil
			}
			res.Results = append(res.Results, PutResult{Prev: prev, Revision: rev})
		case DeleteRequest:
			prev := m.remove(state, rev, func(kv KV) bool { return within(kv.Key, op.Key, op.End) })
			d := DeleteResult{Deleted: int64(len(prev)), Revision: m.reached(rev)}
			if op.PrevKV {
				d.Prev = prev
			}
			res.Results = append(res.Results, d)
		case TxnRequest:
			res.Results = append(res.Results, m.run(before, state, rev, op))
		}
	}
	res.Revision = m.reached(rev)
	return res
}

// reached returns rev if something was changed at it already.
func (m *model) reached(rev int64) int64 {
	if n := len(m.events); n > 0 && m.events[n-1].KV.ModRevision == rev {
		return rev
	}
	return rev - 1
}

// leaf is an operation with its path: indexes in lists, and between them the branch.
type leaf struct {
	op   TxnOp
	path []int
}

func leaves(ops []TxnOp, path []int) (all []leaf) {
	for i, op := range ops {
		here := append(slices.Clone(path), i)
		if nested, ok := op.(TxnRequest); ok {
			all = append(all, leaves(nested.Success, append(slices.Clone(here), 0))...)
			all = append(all, leaves(nested.Failure, append(slices.Clone(here), 1))...)
		} else {
			all = append(all, leaf{op, here})
		}
	}
	return all
}

// together reports whether both operations can be executed: their paths part in a list.
func together(a, b leaf) bool {
	for i := range a.path {
		if a.path[i] != b.path[i] {
			return i%2 == 0
		}
	}
	return false
}

// modelCheck checks each pair of operations. Other tests check the number of operations.
func modelCheck(req TxnRequest) error {
	for _, c := range req.Compare {
		if len(c.Key) == 0 {
			return ErrEmptyKey
		}
	}
	for _, ops := range [][]TxnOp{req.Success, req.Failure} {
		for _, op := range ops {
			if err := modelForm(op); err != nil {
				return err
			}
		}
	}
	return modelOverlap(req)
}

func modelForm(op TxnOp) error {
	switch op := op.(type) {
	case RangeRequest:
		if len(op.Key) == 0 {
			return ErrEmptyKey
		}
	case PutRequest:
		switch {
		case len(op.Key) == 0:
			return ErrEmptyKey
		case op.IgnoreValue && len(op.Value) > 0:
			return ErrValueProvided
		case op.IgnoreLease && op.Lease != 0:
			return ErrLeaseProvided
		}
	case DeleteRequest:
		if len(op.Key) == 0 {
			return ErrEmptyKey
		}
	case TxnRequest:
		err := modelCheck(op)
		if errors.Is(err, ErrDuplicateKey) {
			return nil // an unknown operation is reported last
		}
		return err
	}
	return nil
}

func modelOverlap(req TxnRequest) error {
	for _, ops := range [][]TxnOp{req.Success, req.Failure} {
		all := leaves(ops, nil)
		for _, a := range all {
			put, ok := a.op.(PutRequest)
			if !ok {
				continue
			}
			for _, b := range all {
				other, isPut := b.op.(PutRequest)
				del, isDel := b.op.(DeleteRequest)
				if together(a, b) && (isPut && bytes.Equal(put.Key, other.Key) || isDel && within(put.Key, del.Key, del.End)) {
					return ErrDuplicateKey
				}
			}
		}
	}
	return nil
}

func txnText(res TxnResult, err error) string {
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("succeeded %v, at %d", res.Succeeded, res.Revision)
	for _, r := range res.Results {
		text += "\n"
		switch r := r.(type) {
		case RangeResult:
			text += rangeText(r, nil)
		case PutResult:
			text += fmt.Sprintf("put, at %d%s", r.Revision, prevText(r.Prev))
		case DeleteResult:
			text += fmt.Sprintf("deleted %d, at %d", r.Deleted, r.Revision)
			for _, kv := range r.Prev {
				text += prevText(&kv)
			}
		case TxnResult:
			text += "{" + txnText(r, nil) + "}"
		}
	}
	return text
}
