package keyspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// txnInBatch compares a transaction, and the state after it, with the model.
func (m *machine) txnInBatch(w *Writer) {
	req := m.drawTxn(2)
	events, changes := len(m.model.events), len(w.Changes())
	got, err := w.Txn(req)
	want, wantErr := m.model.txn(req)
	m.same(fmt.Sprintf("txn %+v", req), txnText(got, err), txnText(want, wantErr))
	if changed := len(m.model.events) > events; changed != (len(w.Changes()) == changes+1) {
		m.Fatalf("txn %+v changed %v, but there are %d changes after %d", req, changed, len(w.Changes()), changes)
	}
}

// txnOnce compares a read-only transaction with the model.
func (m *machine) txnOnce(t *rapid.T) {
	m.T = t
	req := m.drawTxn(2)
	if !req.ReadOnly() {
		readsOnly(req.Success)
		readsOnly(req.Failure)
	}
	got, err := m.store.Txn(context.Background(), req)
	want, wantErr := m.model.txn(req)
	m.same(fmt.Sprintf("txn %+v", req), txnText(got, err), txnText(want, wantErr))
}

// readsOnly replaces writes by reads.
func readsOnly(ops []TxnOp) {
	for i, op := range ops {
		switch op := op.(type) {
		case PutRequest:
			ops[i] = RangeRequest{Key: op.Key}
		case DeleteRequest:
			ops[i] = RangeRequest{Key: op.Key, End: op.End, CountOnly: true}
		case TxnRequest:
			readsOnly(op.Success)
			readsOnly(op.Failure)
		}
	}
}

// drawTxn draws a transaction with nested ones down to a depth.
func (m *machine) drawTxn(depth int) (req TxnRequest) {
	for range rapid.IntRange(0, 2).Draw(m.T, "compares") {
		req.Compare = append(req.Compare, m.drawCompare())
	}
	for _, ops := range []*[]TxnOp{&req.Success, &req.Failure} {
		for range rapid.IntRange(0, 3).Draw(m.T, "operations") {
			*ops = append(*ops, m.drawTxnOp(depth))
		}
	}
	return req
}

func (m *machine) drawCompare() Compare {
	t := m.T
	c := Compare{
		Result: CompareResult(rapid.IntRange(0, 3).Draw(t, "result")),
		Target: CompareTarget(rapid.IntRange(0, 4).Draw(t, "target")),
		Number: rapid.Int64Range(0, 5).Draw(t, "number"),
		Value:  []byte(rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")),
	}
	c.Key, c.End = m.drawInterval()
	if c.Target == CompareCreate || c.Target == CompareMod {
		c.Number = rapid.Int64Range(0, m.model.lastRevision()+1).Draw(t, "revision")
	}
	return c
}

func (m *machine) drawTxnOp(depth int) TxnOp {
	kinds := []string{"put", "put", "del", "range", "txn"}
	if depth == 0 {
		kinds = kinds[:4]
	}
	switch rapid.SampledFrom(kinds).Draw(m.T, "kind") {
	case "put":
		req := m.drawPutRequest()
		if rapid.IntRange(0, 3).Draw(m.T, "plain") > 0 { // else few transactions would succeed
			req.Lease, req.IgnoreLease = 0, false
			req.IgnoreValue = req.IgnoreValue && len(req.Value) == 0
		}
		return req
	case "del":
		key, end := m.drawInterval()
		return DeleteRequest{Key: key, End: end, PrevKV: rapid.Bool().Draw(m.T, "prev")}
	case "range":
		req := m.drawRangeRequest()
		if rapid.IntRange(0, 3).Draw(m.T, "old") > 0 {
			req.Revision = 0
		} else if req.Revision == 0 {
			req.Revision = -1
		}
		return req
	default:
		return m.drawTxn(depth - 1)
	}
}

// TestCheckTxnMatchesPairwiseCheck compares the search for keys touched twice with a check of all pairs of operations.
func TestCheckTxnMatchesPairwiseCheck(t *testing.T) {
	made := rapid.Custom(func(t *rapid.T) TxnRequest {
		m := &machine{T: t, model: newModel()}
		return m.overlapping(rapid.IntRange(1, 4).Draw(t, "depth"))
	})
	rapid.Check(t, func(t *rapid.T) {
		req := made.Draw(t, "txn")
		got, want := CheckTxn(req, UsualTxnOps), modelCheck(req)
		if !errors.Is(got, want) || !errors.Is(want, got) {
			t.Fatalf("%+v: %v, want %v", req, got, want)
		}
	})
	// Some are refused and some are not: always the same ones, however few were checked above.
	var refused, passed int
	for seed := range 200 {
		if modelCheck(made.Example(seed)) != nil {
			refused++
		} else {
			passed++
		}
	}
	if refused < 20 || passed < 20 {
		t.Errorf("%d refused, %d passed", refused, passed)
	}
}

// overlapping draws a transaction of puts and deletes of a few keys.
func (m *machine) overlapping(depth int) (req TxnRequest) {
	keys := rapid.SampledFrom([]string{"a", "a\x00", "b", "c", "d", "e", "f", "g", "h"})
	for _, ops := range []*[]TxnOp{&req.Success, &req.Failure} {
		for range rapid.IntRange(0, 5).Draw(m.T, "operations") {
			key := []byte(keys.Draw(m.T, "key"))
			switch kind := rapid.IntRange(0, 9).Draw(m.T, "kind"); {
			case kind < 3:
				*ops = append(*ops, PutRequest{Key: key})
			case kind == 3:
				*ops = append(*ops, DeleteRequest{Key: key})
			case kind < 6:
				end := rapid.SampledFrom([]string{"b", "c", "f", "z", "\x00"}).Draw(m.T, "end")
				*ops = append(*ops, DeleteRequest{Key: key, End: []byte(end)})
			case depth > 0:
				*ops = append(*ops, m.overlapping(depth-1))
			}
		}
	}
	return req
}

func repeat(n int, op func(i int) TxnOp) (ops []TxnOp) {
	for i := range n {
		ops = append(ops, op(i))
	}
	return ops
}

func read(i int) TxnOp   { return RangeRequest{Key: fmt.Appendf(nil, "k%d", i)} }
func putKey(i int) TxnOp { return PutRequest{Key: fmt.Appendf(nil, "k%d", i)} }

// nest wraps an operation in depth transactions.
func nest(depth int, op TxnOp) TxnRequest {
	req := TxnRequest{Success: []TxnOp{op}}
	for range depth - 1 {
		req = TxnRequest{Failure: []TxnOp{req}}
	}
	return req
}

func TestCheckTxnRefusesInvalidTransactions(t *testing.T) {
	key := []byte("k")
	many := slices.Repeat([]Compare{{Key: key}}, UsualTxnOps)
	for name, c := range map[string]struct {
		req  TxnRequest
		want error
	}{
		"empty":                      {TxnRequest{}, nil},
		"as many as may be":          {TxnRequest{Compare: many, Success: repeat(128, putKey), Failure: repeat(128, putKey)}, nil},
		"too many compares":          {TxnRequest{Compare: append(slices.Clone(many), many[0])}, ErrTooManyOps},
		"too many in success":        {TxnRequest{Success: repeat(129, read)}, ErrTooManyOps},
		"too many in failure":        {TxnRequest{Failure: repeat(129, read)}, ErrTooManyOps},
		"too many, and no key":       {TxnRequest{Compare: make([]Compare, 129)}, ErrTooManyOps},
		"128 levels":                 {nest(128, read(0)), nil},
		"129 levels":                 {nest(129, read(0)), ErrTooManyOps},
		"129 levels, the last empty": {nest(128, TxnRequest{}), nil},
		"what is left for a level":   {TxnRequest{Compare: many[:100], Success: []TxnOp{TxnRequest{Failure: repeat(28, read)}}}, nil},
		"more than is left":          {TxnRequest{Compare: many[:100], Success: []TxnOp{TxnRequest{Failure: repeat(29, read)}}}, ErrTooManyOps},
		"compare without a key":      {TxnRequest{Compare: []Compare{{}}}, ErrEmptyKey},
		"compare without a union":    {TxnRequest{Compare: []Compare{{Key: key, Target: 9, Result: -3}}}, nil},
		"range without a key":        {TxnRequest{Success: []TxnOp{RangeRequest{}}}, ErrEmptyKey},
		"delete without a key":       {TxnRequest{Failure: []TxnOp{DeleteRequest{End: key}}}, ErrEmptyKey},
		"put without a key":          {TxnRequest{Failure: []TxnOp{nest(3, PutRequest{})}}, ErrEmptyKey},
		"value provided":             {TxnRequest{Failure: []TxnOp{PutRequest{Key: key, Value: key, IgnoreValue: true}}}, ErrValueProvided},
		"lease provided":             {TxnRequest{Failure: []TxnOp{PutRequest{Key: key, Lease: 1, IgnoreLease: true}}}, ErrLeaseProvided},
		"sort":                       {TxnRequest{Success: []TxnOp{RangeRequest{Key: key, SortTarget: 5}}}, ErrInvalidSort},
		"no operation":               {TxnRequest{Success: []TxnOp{nil}}, ErrKeyNotFound},
		"a key twice":                {TxnRequest{Success: []TxnOp{putKey(1), putKey(2), putKey(1)}}, ErrDuplicateKey},
		"a key twice in failure":     {TxnRequest{Failure: []TxnOp{putKey(1), putKey(2), putKey(1)}}, ErrDuplicateKey},
		"a key in both branches":     {TxnRequest{Success: []TxnOp{putKey(1)}, Failure: []TxnOp{putKey(1)}}, nil},
		"put in a deleted interval":  {TxnRequest{Success: []TxnOp{putKey(1), DeleteRequest{Key: key, End: []byte("l")}}}, ErrDuplicateKey},
		"put in all from a key on":   {TxnRequest{Success: []TxnOp{DeleteRequest{Key: key, End: []byte{0}}, putKey(1)}}, ErrDuplicateKey},
		"put next to a deleted key":  {TxnRequest{Success: []TxnOp{DeleteRequest{Key: []byte("k1")}, putKey(12)}}, nil},
		"an interval deleted twice":  {TxnRequest{Success: []TxnOp{DeleteRequest{Key: key}, DeleteRequest{Key: key}}}, nil},
		"put in the longer interval": {TxnRequest{Success: []TxnOp{
			DeleteRequest{Key: []byte("a"), End: []byte("z")}, DeleteRequest{Key: []byte("b"), End: []byte("c")}, putKey(1)}}, ErrDuplicateKey},
		"put where intervals end": {TxnRequest{Success: []TxnOp{
			DeleteRequest{Key: []byte("a"), End: []byte("c")}, DeleteRequest{Key: []byte("b"), End: []byte("k1")}, putKey(1)}}, nil},
		"put after all from a key on": {TxnRequest{Success: []TxnOp{
			DeleteRequest{Key: []byte("a"), End: []byte{0}}, DeleteRequest{Key: []byte("b"), End: []byte("c")}, putKey(1)}}, ErrDuplicateKey},
		"an interval of nothing": {TxnRequest{Success: []TxnOp{DeleteRequest{Key: []byte("l"), End: key}, putKey(1)}}, nil},
		"form before duplicates": {TxnRequest{Success: []TxnOp{putKey(1), putKey(1), PutRequest{}}}, ErrEmptyKey},
		"put in one txn, deleted in another": {
			TxnRequest{Success: []TxnOp{nest(2, putKey(1)), nest(2, DeleteRequest{Key: []byte("k1")})}}, ErrDuplicateKey},
		"put or deleted in one txn": {
			TxnRequest{Success: []TxnOp{TxnRequest{Success: []TxnOp{putKey(1)}, Failure: []TxnOp{DeleteRequest{Key: []byte("k1")}}}}}, nil},
	} {
		if got := CheckTxn(c.req, UsualTxnOps); !errors.Is(got, c.want) || !errors.Is(c.want, got) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestCheckTxnAcceptsAsManyOperationsAsARequestHolds(t *testing.T) {
	n := 0
	var full func(depth int) TxnRequest
	full = func(depth int) TxnRequest {
		if depth == 0 {
			n++
			return TxnRequest{Success: []TxnOp{putKey(n)}, Failure: []TxnOp{DeleteRequest{Key: fmt.Appendf(nil, "l%d", n)}}}
		}
		return TxnRequest{Success: []TxnOp{full(depth - 1)}, Failure: []TxnOp{full(depth - 1)}}
	}
	req := full(15)
	for range 50 { // two operations a level
		req = TxnRequest{Success: []TxnOp{putKey(n + 1), req}}
		n++
	}
	if err := CheckTxn(nest(129, TxnRequest{}), MaxTxnOps); !errors.Is(err, ErrTooManyOps) {
		t.Errorf("a transaction inside 129 others: %v", err)
	}
	if err := CheckTxn(nest(128, TxnRequest{}), MaxTxnOps); err != nil {
		t.Errorf("a transaction inside 128 others: %v", err)
	}
	flat := TxnRequest{Success: repeat(MaxTxnOps, putKey), Failure: make([]TxnOp, MaxTxnOps)}
	for i := range flat.Failure {
		flat.Failure[i] = TxnRequest{Success: []TxnOp{putKey(i)}}
	}
	if err := CheckTxn(flat, MaxTxnOps+1); err != nil {
		t.Fatal(err)
	}
	if err := CheckTxn(req, UsualTxnOps); err != nil {
		t.Fatal(err)
	}
	if w := req.Weight(); w < 1<<16 {
		t.Errorf("only %d operations", w)
	}
}

// A put with a missing lease is harmless in a branch that is not taken. In the branch that is taken it makes the
// whole transaction fail.
func TestFailedTxnChangesNothing(t *testing.T) {
	h := newFixture(t)
	h.grant(1)
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("a"), Value: []byte("1"), Lease: 1}) })
	before := h.dump("v") + h.dump("h") + h.dump("m") + h.leases.String()
	good := []TxnOp{
		PutRequest{Key: []byte("b"), Lease: 1}, DeleteRequest{Key: []byte("a")},
	}
	for _, bad := range []struct {
		op   TxnOp
		want error
	}{
		{PutRequest{Key: []byte("x"), Lease: 2}, ErrLeaseNotFound},
		{PutRequest{Key: []byte("x"), IgnoreValue: true}, ErrKeyNotFound},
		{PutRequest{Key: []byte("x"), IgnoreLease: true}, ErrKeyNotFound},
		{RangeRequest{Key: []byte("x"), Revision: 3}, ErrFutureRevision},
		{RangeRequest{Key: []byte("x"), Revision: -1}, ErrCompacted},
	} {
		for depth := 1; depth < 4; depth++ {
			missing := Compare{Key: []byte("x"), Result: CompareGreater}
			h.write(func(w *Writer) {
				_, err := w.Txn(TxnRequest{Success: append(slices.Clone(good), nestTaken(depth, bad.op))})
				if !errors.Is(err, bad.want) {
					t.Errorf("%+v: %v, want %v", bad.op, err, bad.want)
				}
				harmless := TxnRequest{Compare: []Compare{missing}, Success: []TxnOp{nestTaken(depth, bad.op)}}
				if res, err := w.Txn(harmless); err != nil || res.Succeeded {
					t.Errorf("%+v in a branch not taken: %+v, %v", bad.op, res, err)
				}
			})
			if after := h.dump("v") + h.dump("h") + h.dump("m") + h.leases.String(); after != before {
				t.Errorf("a txn failed and left:\n%s\nbefore:\n%s", after, before)
			}
		}
	}
}

func nestTaken(depth int, op TxnOp) TxnOp {
	for range depth {
		op = TxnRequest{Success: []TxnOp{op}}
	}
	return op
}

func TestMisusedTxnIsRefused(t *testing.T) {
	h := newFixture(t)
	if _, err := h.store.Txn(t.Context(), TxnRequest{Success: []TxnOp{putKey(1)}}); !errors.Is(err, ErrMisuse) {
		t.Errorf("a txn that writes, given to a reader: %v", err)
	}
	w := h.store.Begin(h.db.NewIndexedBatch())
	err := w.Group(func() error { _, err := w.Txn(TxnRequest{}); return err })
	if !errors.Is(err, ErrMisuse) {
		t.Errorf("a txn in a group: %v", err)
	}
}

// A transaction does not read a revision that was compacted, and perhaps trimmed, while it began.
func TestTxnReadsNoCompactedRevision(t *testing.T) {
	h := newFixture(t)
	put := func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k")}) }
	h.write(put)
	before := h.store.published.Load()
	r := h.store.readingAt(before)
	if r == nil || r.rev != 2 {
		t.Fatalf("at the newest revision: %+v", r)
	}
	h.write(put)
	h.write(func(w *Writer) { _ = w.Compact(3) })
	h.write(func(w *Writer) { _, _ = w.Trim(10) })
	if late := h.store.readingAt(before); late != nil {
		t.Errorf("reads at %d, compacted to %d", late.rev, h.store.CompactRevision())
	}
	res, err := r.txn(t.Context(), &TxnRequest{Success: []TxnOp{RangeRequest{Key: []byte("k")}}})
	if err != nil || res.Results[0].(RangeResult).Count != 1 {
		t.Errorf("what was open before: %+v, %v", res, err)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// A read of the current revision never fails because that revision is compacted meanwhile.
func TestCurrentReadsSurviveCompaction(t *testing.T) {
	h := newFixture(t)
	stop := make(chan struct{})
	failed := make(chan error, 2)
	for _, read := range []func() error{
		func() error {
			_, err := h.store.Range(context.Background(), RangeRequest{Key: []byte("k"), End: []byte{0}})
			return err
		},
		func() error {
			res, err := h.store.Txn(context.Background(), TxnRequest{Success: []TxnOp{
				RangeRequest{Key: []byte("k0")}, RangeRequest{Key: []byte("k1")},
			}})
			if err != nil || len(res.Results) == 0 {
				return err
			}
			a, b := res.Results[0].(RangeResult), res.Results[1].(RangeResult)
			if len(a.KVs) != len(b.KVs) || len(a.KVs) > 0 && !bytes.Equal(a.KVs[0].Value, b.KVs[0].Value) {
				return fmt.Errorf("two reads of one txn: %+v, %+v", a, b)
			}
			return nil
		},
	} {
		go func() {
			for {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				if err := read(); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for i := range 300 {
		h.write(func(w *Writer) {
			value := fmt.Appendf(nil, "%d", i)
			res, _ := w.Txn(TxnRequest{Success: []TxnOp{
				PutRequest{Key: []byte("k0"), Value: value}, PutRequest{Key: []byte("k1"), Value: value},
			}})
			_ = w.Compact(res.Revision)
		})
		h.write(func(w *Writer) { _, _ = w.Trim(1 << 20) })
	}
	close(stop)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
