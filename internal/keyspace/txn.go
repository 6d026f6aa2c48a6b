package keyspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Bounds of [TxnRequest.Size]. A server allows its clients UsualTxnOps unless its configuration says otherwise. All members
// refuse a transaction beyond MaxTxnOps.
const (
	UsualTxnOps = 128
	MaxTxnOps   = 10_000
)

// maxTxnDepth bounds the transactions around one. [UsualTxnOps] allows no more in any case.
const maxTxnDepth = UsualTxnOps

// TxnRequest combines several operations into one request: Success is executed if all of Compare hold, and Failure
// otherwise. The compares of nested transactions are decided together with its own, by the state before the whole
// request.
type TxnRequest struct {
	Compare          []Compare
	Success, Failure []TxnOp
}

// TxnOp is an operation in a transaction: a RangeRequest, a PutRequest, a DeleteRequest, or a TxnRequest.
type TxnOp interface{ txnOp() }

func (RangeRequest) txnOp()  {}
func (PutRequest) txnOp()    {}
func (DeleteRequest) txnOp() {}
func (TxnRequest) txnOp()    {}

// Size returns the number of compares, or of operations of a branch, whichever is the largest of the three. The size of
// the largest nested transaction is added to it.
func (req *TxnRequest) Size() int {
	nested := 0
	for _, ops := range [][]TxnOp{req.Success, req.Failure} {
		for _, op := range ops {
			if op, ok := op.(TxnRequest); ok {
				nested = max(nested, op.Size())
			}
		}
	}
	return nested + max(len(req.Compare), len(req.Success), len(req.Failure))
}

// The Command methods mark requests that a log can carry; the Result methods mark their answers.
func (PutRequest) Command()    {}
func (DeleteRequest) Command() {}
func (TxnRequest) Command()    {}
func (PutResult) Result()      {}
func (DeleteResult) Result()   {}
func (TxnResult) Result()      {}

// TxnResult is the answer to a TxnRequest. Results are the results of the executed branch, in order: a RangeResult, a
// PutResult, a DeleteResult, or a TxnResult each.
type TxnResult struct {
	Succeeded bool
	Results   []TxnOpResult
	Revision  Revision

	// Dropped is set if a transaction that writes was executed, but its answer did not fit and lacks results. Held,
	// if not nil, is the answer's share of AnswerLimits.All.
	Dropped bool
	Held    *Held
}

// TxnOpResult is the answer to a TxnOp.
type TxnOpResult interface{ txnOpResult() }

func (RangeResult) txnOpResult()  {}
func (PutResult) txnOpResult()    {}
func (DeleteResult) txnOpResult() {}
func (TxnResult) txnOpResult()    {}

// CompareResult is the expected outcome of a comparison. Its numbers are those of etcd's API.
type CompareResult int32

// The expected relations of a key's field to the given value.
const (
	CompareEqual CompareResult = iota
	CompareGreater
	CompareLess
	CompareNotEqual
)

// CompareTarget is the compared field of a key. Its numbers are those of etcd's API.
type CompareTarget int32

// The targets of a Compare.
const (
	CompareVersion CompareTarget = iota
	CompareCreate
	CompareMod
	CompareValue
	CompareLease
)

// Compare holds if it holds for every key of the interval, given as in RangeRequest. For an empty interval it holds
// if it would for a key all of whose numbers are 0, but a compare of values does not hold. As in etcd, an unknown
// result always holds, and an unknown target compares as equal.
type Compare struct {
	Result   CompareResult
	Target   CompareTarget
	Key, End []byte
	Number   int64  // what to compare the field with
	Value    []byte // what to compare with, for CompareValue
}

// ReadOnly reports whether no branch of the transaction, or of a nested one, writes.
func (r TxnRequest) ReadOnly() bool {
	return !r.contains(func(op TxnOp) bool {
		switch op.(type) {
		case PutRequest, DeleteRequest:
			return true
		}
		return false
	})
}

// Puts reports whether a branch of the transaction, or of a nested one, puts a key.
func (r TxnRequest) Puts() bool {
	return r.contains(func(op TxnOp) bool { _, put := op.(PutRequest); return put })
}

// contains reports whether an operation of any branch satisfies sought.
func (r *TxnRequest) contains(sought func(TxnOp) bool) bool {
	for _, ops := range [][]TxnOp{r.Success, r.Failure} {
		for _, op := range ops {
			if nested, ok := op.(TxnRequest); sought(op) || ok && nested.contains(sought) {
				return true
			}
		}
	}
	return false
}

// Weight returns the number of compares and operations in all branches.
func (r TxnRequest) Weight() int {
	n := len(r.Compare) + len(r.Success) + len(r.Failure)
	for _, ops := range [][]TxnOp{r.Success, r.Failure} {
		for _, op := range ops {
			if nested, ok := op.(TxnRequest); ok {
				n += nested.Weight()
			}
		}
	}
	return n
}

// Bytes returns the total length of the transaction's keys and values.
func (r TxnRequest) Bytes() (n int) {
	for i := range r.Compare {
		c := &r.Compare[i]
		n += len(c.Key) + len(c.End) + len(c.Value)
	}
	for _, ops := range [][]TxnOp{r.Success, r.Failure} {
		for _, op := range ops {
			switch op := op.(type) {
			case RangeRequest:
				n += len(op.Key) + len(op.End)
			case PutRequest:
				n += len(op.Key) + len(op.Value)
			case DeleteRequest:
				n += len(op.Key) + len(op.End)
			case TxnRequest:
				n += op.Bytes()
			}
		}
	}
	return n
}

// Txn executes a transaction as one request: its changes share a revision, and its reads see its earlier changes. It
// refuses what CheckTxn refuses. It finds all other errors before it changes anything, so a transaction that fails
// has changed nothing. Operations of the branch that is not taken have no effect.
func (w *Writer) Txn(req TxnRequest) (TxnResult, error) {
	var res TxnResult
	err := w.Group(func() error {
		err := CheckTxn(req, MaxTxnOps)
		if err != nil {
			return err
		}
		var t taken
		before, err := w.view(w.s.revision)
		if err != nil {
			return err
		}
		before.newest = func(key []byte) (latest, error) { return w.latest(key, false) }
		if t, err = before.take(context.Background(), &req); err != nil {
			return err
		}
		if err = w.checkTaken(&t); err != nil {
			return err
		}
		w.beginAnswer()
		res, err = w.execute(&t)
		res.Held, res.Dropped = w.room.hold(), w.room.dropped
		return err
	})
	return res, err
}

// taken is the path through a transaction that the compares decided.
type taken struct {
	succeeded bool
	ops       []TxnOp
	nested    []taken // paths through the TxnRequests in ops, in order
}

// take decides the compares of a transaction, and of the nested ones on its path, by the state in the view.
func (v *view) take(ctx context.Context, req *TxnRequest) (t taken, err error) {
	t.succeeded, t.ops = true, req.Success
	for i := range req.Compare {
		if t.succeeded, err = v.holds(ctx, &req.Compare[i]); err != nil {
			return taken{}, err
		}
		if !t.succeeded {
			t.ops = req.Failure
			break
		}
	}
	for _, op := range t.ops {
		if nested, ok := op.(TxnRequest); ok {
			n, err := v.take(ctx, &nested)
			if err != nil {
				return taken{}, err
			}
			t.nested = append(t.nested, n)
		}
	}
	return t, nil
}

// holds decides a compare.
func (v *view) holds(ctx context.Context, c *Compare) (bool, error) {
	if v.newest != nil && len(c.End) == 0 && c.Target != CompareValue {
		return v.holdsNewest(c)
	}
	found := false
	err := v.scan(ctx, spanOf(c.Key, c.End), func(i *item) error {
		found = true
		if !c.accepts(i) {
			return errStop
		}
		return nil
	})
	switch {
	case errors.Is(err, errStop):
		return false, nil
	case err != nil:
		return false, err
	case !found:
		return c.Target != CompareValue && c.accepts(new(item)), nil
	}
	return true, nil
}

// holdsNewest decides a compare of a single key, unless it compares the value.
func (v *view) holdsNewest(c *Compare) (bool, error) {
	l, err := v.newest(c.Key)
	if err != nil {
		return false, err
	}
	i := new(item)
	if l.found {
		i.mod = l.kv.ModRevision
		i.version = version{create: l.kv.CreateRevision, version: l.kv.Version, lease: l.kv.Lease}
	}
	return c.accepts(i), nil
}

// accepts reports whether a compare holds for one key.
func (c *Compare) accepts(i *item) bool {
	var order int
	switch c.Target {
	case CompareVersion:
		order = cmp.Compare(i.version.version, c.Number)
	case CompareCreate:
		order = cmp.Compare(i.create, c.Number)
	case CompareMod:
		order = cmp.Compare(i.mod, c.Number)
	case CompareValue:
		order = bytes.Compare(i.value, c.Value)
	case CompareLease:
		order = cmp.Compare(i.lease, c.Number)
	}
	switch c.Result {
	case CompareEqual:
		return order == 0
	case CompareGreater:
		return order > 0
	case CompareLess:
		return order < 0
	case CompareNotEqual:
		return order != 0
	}
	return true
}

// checkTaken finds the errors on the path through a transaction.
func (w *Writer) checkTaken(t *taken) error {
	nested := t.nested
	for _, op := range t.ops {
		var err error
		switch op := op.(type) {
		case RangeRequest:
			_, err = readableInTxn(op.Revision, w.before, w.s.compact)
		case PutRequest:
			err = w.checkPut(&op)
		case TxnRequest:
			err = w.checkTaken(&nested[0])
			nested = nested[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkPut finds errors that applyPut would return. An earlier operation of the transaction cannot change the result,
// because no key is put twice, or both put and deleted.
func (w *Writer) checkPut(req *PutRequest) error {
	if err := w.resolveLease(&version{lease: req.Lease}); err != nil {
		return err
	}
	if !req.IgnoreValue && !req.IgnoreLease {
		return nil
	}
	prev, err := w.latest(req.Key, false)
	if err == nil && !prev.found {
		err = ErrKeyNotFound
	}
	return err
}

// readableInTxn is like readable, but a negative revision counts as compacted: every member must compute the same
// result, whatever revision it takes for the current one.
func readableInTxn(asked, current, compact Revision) (Revision, error) {
	if asked < 0 {
		return 0, ErrCompacted
	}
	return readable(asked, current, compact)
}

// execute executes the operations on the path through a transaction.
func (w *Writer) execute(t *taken) (TxnResult, error) {
	res := TxnResult{Succeeded: t.succeeded}
	nested := t.nested
	for _, op := range t.ops {
		var answer TxnOpResult
		var err error
		switch op := op.(type) {
		case RangeRequest:
			answer, err = w.Range(op)
		case PutRequest:
			answer, err = w.applyPut(&op)
		case DeleteRequest:
			answer, err = w.applyDelete(&op)
		case TxnRequest:
			answer, err = w.execute(&nested[0])
			nested = nested[1:]
		default:
			err = fmt.Errorf("%w: operation %T in a txn", ErrMisuse, op)
		}
		if err != nil {
			return TxnResult{}, err
		}
		res.Results = append(res.Results, answer)
	}
	res.Revision = w.s.revision
	return res, nil
}

// Txn executes a transaction that writes nothing, at one revision. Any goroutine may call it.
func (s *Store) Txn(ctx context.Context, req TxnRequest) (TxnResult, error) {
	if err := CheckTxn(req, MaxTxnOps); err != nil {
		return TxnResult{}, err
	}
	if !req.ReadOnly() {
		return TxnResult{}, fmt.Errorf("%w: a txn that writes needs a Writer", ErrMisuse)
	}
	r := s.openReading()
	res, err := r.txn(ctx, &req)
	return res, errors.Join(err, r.close())
}

// reading is a snapshot of the keyspace for several reads.
type reading struct {
	view
	compact Revision // revisions from it up to view.rev can be read
}

// openReading opens the keyspace at the newest revision.
func (s *Store) openReading() *reading {
	for {
		if r := s.readingAt(s.published.Load()); r != nil {
			return r
		}
	}
}

// readingAt opens the keyspace at the revision of a published state. It returns nil if that was compacted meanwhile.
func (s *Store) readingAt(p *published) *reading {
	snapshot := s.db.NewSnapshot()
	// Whatever the snapshot lacks is compacted by now; see openView.
	compact := s.CompactRevision()
	if compact > p.revision {
		_ = snapshot.Close() // fails only if it was closed before
		return nil
	}
	r := &reading{view: view{reader: snapshot, rev: p.revision, close: snapshot.Close}, compact: compact}
	if len(p.ends) > 0 {
		r.ends = &recordedEndings{reader: snapshot, cache: make(map[uint64]Revision)}
	}
	return r
}

func (r *reading) txn(ctx context.Context, req *TxnRequest) (TxnResult, error) {
	t, err := r.take(ctx, req)
	if err != nil {
		return TxnResult{}, err
	}
	return r.execute(ctx, &t)
}

func (r *reading) execute(ctx context.Context, t *taken) (TxnResult, error) {
	res := TxnResult{Succeeded: t.succeeded, Revision: r.rev}
	nested := t.nested
	for _, op := range t.ops {
		var answer TxnOpResult
		var err error
		switch op := op.(type) {
		case RangeRequest:
			answer, err = r.read(ctx, &op)
		case TxnRequest:
			answer, err = r.execute(ctx, &nested[0])
			nested = nested[1:]
		}
		if err != nil {
			return TxnResult{}, err
		}
		res.Results = append(res.Results, answer)
	}
	return res, nil
}

func (r *reading) read(ctx context.Context, req *RangeRequest) (RangeResult, error) {
	rev, err := readableInTxn(req.Revision, r.rev, r.compact)
	if err != nil {
		return RangeResult{}, err
	}
	at := view{reader: r.reader, rev: rev, ends: r.ends}
	res, err := at.collect(ctx, req)
	res.Revision = r.rev
	return res, err
}
