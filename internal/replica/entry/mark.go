package entry

import (
	"bytes"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// MarkAct returns the name whose mark a command replaces on behalf of a client, and the new value of the mark's key; nil if
// the key is deleted. ok is false for every other command. A server says from where a transaction came only if it replaces a
// mark, so that origin tells it from a write of a client that has the same form.
func MarkAct(c Command, by access.Caller) (name string, value []byte, ok bool) {
	if by.Origin == (access.Origin{}) {
		return "", nil, false
	}
	txn, _ := c.(keyspace.TxnRequest) // the zero transaction writes nothing
	return ReplacedMark(txn)
}

// ReplacedMark is [MarkAct] for a transaction whose origin does not matter. It looks for one condition on the key of a mark,
// and one write of the same key.
func ReplacedMark(txn keyspace.TxnRequest) (name string, value []byte, ok bool) {
	if len(txn.Compare) != 1 || len(txn.Success) != 1 || len(txn.Failure) != 0 {
		return "", nil, false
	}
	var key []byte
	switch op := txn.Success[0].(type) {
	case keyspace.PutRequest:
		key, value = op.Key, op.Value
	case keyspace.DeleteRequest:
		if len(op.End) > 0 {
			return "", nil, false
		}
		key = op.Key
	}
	if name, ok = strings.CutPrefix(string(key), backend.MarkPrefix); !ok || !bytes.Equal(key, txn.Compare[0].Key) {
		return "", nil, false
	}
	return name, value, true
}
