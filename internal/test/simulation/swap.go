package simulation

import (
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// register is the prefix of the keys that clients compare and swap, and registers is their number. guard is the prefix of the
// keys that names guard: a holder writes them on the condition that it holds the name.
const (
	registers = 2
	register  = "s"
	guard     = "g"
)

// errCompared stands for a txn that was refused because of its compares.
var errCompared = errors.New("a compare does not hold")

func (v version) String() string {
	if !v.there {
		return "nothing"
	}
	return fmt.Sprintf("%q of revision %d, created at %d, version %d", v.value, v.revision, v.created, v.number)
}

func describe(c keyspace.Compare) string {
	target := [...]string{"version", "create revision", "revision", "value"}[c.Target]
	return fmt.Sprintf("%s of %s, to be %d or %q,", target, c.Key, c.Number, c.Value)
}

// anyRead draws a key to read.
func anyRead(w *world) string {
	switch n := w.dice.work.IntN(keysOfClients + registers + namesOfClients); {
	case n < keysOfClients:
		return string(rune('a' + n))
	case n < keysOfClients+registers:
		return register + string(rune('a'+n-keysOfClients))
	default:
		return guard + string(rune('a'+n-keysOfClients-registers))
	}
}

// swap puts a register, or all of them in one txn, if they are still as the client believes.
func (c *client) swap() {
	w := c.w
	w.puts++
	k := &call{kind: swapping, value: sequence(w.puts)}
	first := w.dice.work.IntN(registers)
	n := 1
	if chance(w.dice.work, 0.3) {
		n = registers
	}
	request := keyspace.TxnRequest{}
	for i := range n {
		key := register + string(rune('a'+(first+i)%registers))
		k.compares = append(k.compares, c.expect(key))
		k.writes = append(k.writes, pair{key, k.value})
		request.Success = append(request.Success, keyspace.PutRequest{Key: []byte(key), Value: []byte(k.value)})
	}
	k.key = k.writes[0].key
	request.Failure = []keyspace.TxnOp{keyspace.RangeRequest{Key: []byte(k.key)}}
	c.commit(k, request)
}

// commit sends a txn.
func (c *client) commit(k *call, request keyspace.TxnRequest) {
	request.Compare = k.compares
	k.event = replica.Request{Command: request}
	c.w.facts.txns[k.value] = k
	c.ask(c.anyMember(0.95), k)
}

// expect returns the condition that a register is as this client believes.
func (c *client) expect(key string) keyspace.Compare {
	v := c.known[key]
	compare := keyspace.Compare{Target: keyspace.CompareMod, Key: []byte(key), Number: v.revision}
	switch dice := c.w.dice.work.IntN(3); {
	case !v.there:
		compare.Target = keyspace.CompareCreate
	case dice == 0:
		compare.Target, compare.Number, compare.Value = keyspace.CompareValue, 0, []byte(v.value)
	case dice == 1 && v.number > 0:
		compare.Target, compare.Number = keyspace.CompareVersion, v.number
	}
	return compare
}

// heardSwap handles the answer to a swap.
func (c *client) heardSwap(k *call, result keyspace.TxnResult) {
	c.w.facts.checkTxn(k, result)
	if !result.Succeeded {
		c.known[k.key] = c.w.facts.checkSeen(k, result)
		return
	}
	c.w.mark("a compare held")
	for _, p := range k.writes {
		v := version{revision: result.Revision, value: k.value, there: true}
		if before := c.known[p.key]; before.there && before.number > 0 {
			v.number = before.number + 1
		}
		c.known[p.key] = v
	}
}

// guard writes the key that a name guards, on the condition that its holder still has the name. It may also rewrite the
// holder's card. Sometimes a former holder tries it.
func (c *client) guard() {
	w := c.w
	l := c.someHeld()
	if c.former != nil && (l == nil || chance(w.dice.work, 0.2)) {
		l = c.former
	}
	if l == nil {
		return
	}
	w.puts++
	k := &call{kind: guarding, key: guard + l.name[len(l.name)-1:], value: sequence(w.puts), token: l.token, leases: []*lease{l}}
	owner := ownership.Key(l.name, l.id)
	k.compares = []keyspace.Compare{{Target: keyspace.CompareCreate, Key: owner, Number: l.token}}
	k.writes = []pair{{k.key, k.value}}
	request := keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.PutRequest{Key: []byte(k.key), Value: []byte(k.value)}}}
	if chance(w.dice.work, 0.3) {
		k.writes = append(k.writes, pair{string(owner), k.value})
		request.Success = append(request.Success, keyspace.PutRequest{Key: owner, Value: []byte(k.value), IgnoreLease: true})
	}
	c.commit(k, request)
}

// someHeld returns a lease by which the client holds a name and whose end it has not requested, or nil.
func (c *client) someHeld() *lease {
	var held []*lease
	for _, l := range c.leases {
		if l.holds && !l.gone && !l.ending && !l.transferring {
			held = append(held, l)
		}
	}
	if len(held) == 0 {
		return nil
	}
	return held[c.w.dice.work.IntN(len(held))]
}

// heardGuard handles the answer to a guarded write. A refusal means that the name is lost.
func (c *client) heardGuard(k *call, result keyspace.TxnResult) {
	w, l := c.w, k.leases[0]
	w.facts.checkTxn(k, result)
	switch {
	case !result.Succeeded:
		w.facts.checkGone(k, l)
		l.gone = true
		if c.former == l {
			c.former = nil
		}
		w.mark("a guarded write of a former holder was refused")
	case len(k.writes) > 1:
		w.mark("a holder announced a card")
	default:
		w.mark("a guarded write was acknowledged")
	}
}
