package simulation

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// version is the state of a key from a revision on. there is false if the key did not exist.
type version struct {
	revision, created, number int64
	value                     string
	there                     bool
}

// follow keeps every version of every key, and checks that each follows from the one before it.
func (f *facts) follow(m *member, c keyspace.Change) {
	for _, e := range c.Events {
		key := string(e.KV.Key)
		if e.Type != keyspace.EventPut {
			f.keys[key] = append(f.keys[key], version{revision: c.Revision})
			continue
		}
		before := f.at(key, c.Revision-1)
		now := version{e.KV.ModRevision, e.KV.CreateRevision, e.KV.Version, string(e.KV.Value), true}
		created := c.Revision
		if before.there {
			created = before.created
		}
		if now.revision != c.Revision || now.created != created || now.number != before.number+1 {
			f.w.fail("versions of a key follow each other (I5)", "at revision %d %s makes %s %+v, which was %+v", c.Revision, m.name, key, now, before)
		}
		f.keys[key] = append(f.keys[key], now)
	}
	for _, key := range c.Ended {
		f.keys[key] = append(f.keys[key], version{revision: c.Revision})
	}
}

// at returns the true version of a key at a revision.
func (f *facts) at(key string, revision int64) version {
	for _, v := range slices.Backward(f.keys[key]) {
		if v.revision <= revision {
			return v
		}
	}
	return version{}
}

// meets decides a compare by the true version of the key. It knows the compares that clients make.
func (f *facts) meets(c keyspace.Compare, revision int64) bool {
	v := f.at(string(c.Key), revision)
	switch {
	case c.Target == keyspace.CompareValue:
		return v.there && v.value == string(c.Value)
	case !v.there:
		return c.Number == 0
	case c.Target == keyspace.CompareCreate:
		return v.created == c.Number
	case c.Target == keyspace.CompareVersion:
		return v.number == c.Number
	}
	return v.revision == c.Number
}

// holds decides all compares of a txn as if it were applied right after a revision.
func (k *call) holds(f *facts, revision int64) bool {
	return !slices.ContainsFunc(k.compares, func(c keyspace.Compare) bool { return !f.meets(c, revision) })
}

// requested returns the value that identifies the client's request behind a change; "" if there is none.
func requested(made change) string {
	for _, p := range made.puts {
		if p.value != "" && p.value[0] == 'v' {
			return p.value
		}
	}
	return ""
}

// checkOnce checks that a request is applied at most once. A txn must be applied as a whole, and its compares must hold
// right before it.
func (f *facts) checkOnce(m *member, revision int64, made change) {
	value := requested(made)
	if value == "" {
		return
	}
	if at, twice := f.values[value]; twice {
		f.w.fail("a request is applied at most once", "%s puts %q at revision %d, which is at %d already", m.name, value, revision, at)
	}
	k := f.txns[value]
	if k == nil {
		return
	}
	if !slices.Equal(made.puts, k.writes) {
		f.w.fail("a txn is applied as a whole", "at revision %d %s puts %v of a txn that puts %v", revision, m.name, made.puts, k.writes)
	}
	if !k.holds(f, revision-1) {
		f.w.fail("a txn is applied only if its compares hold right before it", "at revision %d %s applies %v, which compares %s",
			revision, m.name, made.puts, f.compared(k, revision-1))
	}
	if k.kind == guarding {
		f.checkGuarded(k, m, revision)
	}
}

// checkGuarded checks that a former holder of a name does not write the key that the name guards.
func (f *facts) checkGuarded(k *call, m *member, revision int64) {
	if last := f.guarded[k.key]; k.token < last {
		f.w.fail("a former holder writes no more (G12)", "at revision %d %s lets token %d write %s, after token %d", revision, m.name, k.token, k.key, last)
	}
	f.guarded[k.key] = k.token
}

// compared describes the compares of a txn and the true versions.
func (f *facts) compared(k *call, revision int64) string {
	text := ""
	for _, c := range k.compares {
		text += describe(c) + " with " + f.at(string(c.Key), revision).String() + "; "
	}
	return text
}

// checkTxn checks the answer to a txn (I3, I6). An applied txn is there. A refused one has changed nothing, and its compares
// did not hold in a state with every change that a client knew of at the request.
func (f *facts) checkTxn(k *call, result keyspace.TxnResult) {
	if result.Succeeded {
		f.checkPut(k, keyspace.PutResult{Revision: result.Revision})
		for _, p := range k.writes {
			f.learnedKey(p.key, result.Revision)
		}
		return
	}
	f.checkFailedPut(k, errCompared)
	if k.holds(f, result.Revision) {
		f.w.fail("a txn is refused only if its compares do not hold", "%s refuses %s at revision %d one that compares %s",
			k.member.name, k.client.name, result.Revision, f.compared(k, result.Revision))
	}
	if result.Revision < k.floor {
		f.w.fail("writes are linearizable (I3)", "%s refuses %s a txn at revision %d, but before the request a client knew of %d",
			k.member.name, k.client.name, result.Revision, k.floor)
	}
	f.learned(result.Revision)
	f.w.mark("a compare did not hold")
}

// checkSeen checks the read in a refused txn, and returns what it saw.
func (f *facts) checkSeen(k *call, result keyspace.TxnResult) version {
	truth, seen := f.at(k.key, result.Revision), version{}
	if read, ok := result.Results[0].(keyspace.RangeResult); ok && len(read.KVs) > 0 {
		kv := read.KVs[0]
		seen = version{kv.ModRevision, kv.CreateRevision, kv.Version, string(kv.Value), true}
	}
	if seen.there != truth.there || seen.there && seen != truth {
		f.w.fail("a txn reads the true state", "%s shows %s in a txn %s as %v at revision %d, and it was %v",
			k.member.name, k.client.name, k.key, seen, result.Revision, truth)
	}
	f.learnedKey(k.key, seen.revision)
	return seen
}
