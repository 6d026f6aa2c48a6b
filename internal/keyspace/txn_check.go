package keyspace

import (
	"cmp"
	"slices"
)

// CheckTxn finds errors of a transaction that do not depend on the state: a [TxnRequest.Size] beyond the limit, malformed
// operations in either branch, and two operations on one key that can both be taken, of which one puts the key and the
// other puts or deletes it. So an invalid transaction needs no log entry.
func CheckTxn(req TxnRequest, limit int) error {
	if err := checkOps(&req, limit, 0); err != nil {
		return err
	}
	if _, err := touchedBy(req.Success); err != nil {
		return err
	}
	_, err := touchedBy(req.Failure)
	return err
}

// checkOps checks the number and the form of the operations of a transaction. depth is the number of transactions around it.
func checkOps(req *TxnRequest, limit, depth int) error {
	most := max(len(req.Compare), len(req.Success), len(req.Failure))
	if most > limit || depth > maxTxnDepth {
		return ErrTooManyOps
	}
	for i := range req.Compare {
		if len(req.Compare[i].Key) == 0 {
			return ErrEmptyKey
		}
	}
	for _, ops := range [][]TxnOp{req.Success, req.Failure} {
		for _, op := range ops {
			if err := checkOp(op, limit-most, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op TxnOp, limit, depth int) error {
	switch op := op.(type) {
	case RangeRequest:
		return op.check()
	case PutRequest:
		return op.check()
	case DeleteRequest:
		return op.check()
	case TxnRequest:
		return checkOps(&op, limit, depth)
	}
	return ErrKeyNotFound // etcd answers an unknown operation with this error
}

// touched is the set of keys that operations may put or delete.
type touched struct {
	puts []string  // sorted, without duplicates
	dels []stretch // sorted, not overlapping or adjacent
}

// stretch is the range [from, to); it is not empty.
type stretch struct {
	from, to  string
	unbounded bool // the range has no end, and to is unused
}

// reaches reports whether the stretch contains key, which must not be before it.
func (s *stretch) reaches(key string) bool { return s.unbounded || key < s.to }

func stretchOf(in span) stretch {
	s := stretch{from: string(in.key), to: string(in.end), unbounded: in.unbounded}
	if in.single {
		s.to = s.from + "\x00"
	}
	return s
}

// touchedBy returns the keys that the operations of a branch may touch. It fails if two operations may put the same
// key, or one may put a key that another may delete. The two branches of a nested transaction exclude each other.
//
// It takes time n log n in the number of operations, for each of the at most maxTxnDepth levels.
func touchedBy(ops []TxnOp) (touched, error) {
	direct, err := touchedDirectly(ops)
	parts := []touched{direct}
	for _, op := range ops {
		txn, nested := op.(TxnRequest)
		if !nested || err != nil {
			continue
		}
		var then, otherwise touched
		if then, err = touchedBy(txn.Success); err == nil {
			otherwise, err = touchedBy(txn.Failure)
		}
		parts = append(parts, then.or(otherwise))
	}
	if err != nil {
		return touched{}, err
	}
	return apart(parts)
}

// apart returns the keys that any of the parts touches. It fails if two parts conflict.
func apart(parts []touched) (touched, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	left, err := apart(parts[:len(parts)/2])
	if err != nil {
		return touched{}, err
	}
	right, err := apart(parts[len(parts)/2:])
	if err != nil {
		return touched{}, err
	}
	if left.conflicts(right) {
		return touched{}, ErrDuplicateKey
	}
	return left.or(right), nil
}

// touchedDirectly is touchedBy without the nested transactions.
func touchedDirectly(ops []TxnOp) (all touched, err error) {
	for _, op := range ops {
		switch op := op.(type) {
		case PutRequest:
			all.puts = append(all.puts, string(op.Key))
		case DeleteRequest:
			if in := spanOf(op.Key, op.End); !in.empty() {
				all.dels = append(all.dels, stretchOf(in))
			}
		}
	}
	slices.Sort(all.puts)
	slices.SortFunc(all.dels, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	all.dels = joined(all.dels)
	if hasPairs(all.puts) || anyCovered(all.puts, all.dels) {
		return touched{}, ErrDuplicateKey
	}
	return all, nil
}

// hasPairs reports whether a sorted list contains a key twice.
func hasPairs(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return true
		}
	}
	return false
}

func (t touched) conflicts(other touched) bool {
	return haveCommonKey(t.puts, other.puts) || anyCovered(t.puts, other.dels) || anyCovered(other.puts, t.dels)
}

// or returns the keys touched by either.
func (t touched) or(other touched) touched {
	return touched{puts: eitherKey(t.puts, other.puts), dels: eitherStretch(t.dels, other.dels)}
}

// haveCommonKey reports whether two sorted lists have a key in common.
func haveCommonKey(a, b []string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return slices.ContainsFunc(a, func(key string) bool {
		_, found := slices.BinarySearch(b, key)
		return found
	})
}

// anyCovered reports whether one of the sorted stretches contains one of the sorted keys.
func anyCovered(keys []string, stretches []stretch) bool {
	if len(keys) > len(stretches) {
		return slices.ContainsFunc(stretches, func(s stretch) bool {
			i, _ := slices.BinarySearch(keys, s.from)
			return i < len(keys) && s.reaches(keys[i])
		})
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		i, found := slices.BinarySearchFunc(stretches, key, func(s stretch, key string) int {
			return cmp.Compare(s.from, key)
		})
		if !found {
			i-- // the last stretch that begins before the key
		}
		return i >= 0 && stretches[i].reaches(key)
	})
}

// eitherKey merges two sorted lists without duplicates.
func eitherKey(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] > b[0] {
			a, b = b, a
		}
		if a[0] == b[0] {
			b = b[1:]
		}
		out, a = append(out, a[0]), a[1:]
	}
	return append(append(out, a...), b...)
}

// eitherStretch merges two sorted lists of stretches. Overlapping or adjacent stretches become one.
func eitherStretch(a, b []stretch) []stretch {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	all := make([]stretch, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0].from < a[0].from {
			a, b = b, a
		}
		all, a = append(all, a[0]), a[1:]
	}
	return joined(append(append(all, a...), b...))
}

// joined makes one of overlapping or adjacent stretches of a sorted list, whose memory it reuses.
func joined(sorted []stretch) []stretch {
	out := sorted[:0]
	for _, next := range sorted {
		if n := len(out); n > 0 && (out[n-1].unbounded || next.from <= out[n-1].to) {
			out[n-1].unbounded = out[n-1].unbounded || next.unbounded
			out[n-1].to = max(out[n-1].to, next.to)
			continue
		}
		out = append(out, next)
	}
	return out
}
