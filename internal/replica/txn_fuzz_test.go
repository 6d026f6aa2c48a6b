package replica

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// FuzzTxn carries out whatever parses as a txn. It succeeds, or is refused for a reason that is not fatal;
// then it has changed nothing. What can be found out beforehand is.
func FuzzTxn(f *testing.F) {
	key := []byte("a")
	for _, txn := range []keyspace.TxnRequest{
		{},
		{Success: []keyspace.TxnOp{keyspace.PutRequest{Key: key, Lease: 1}, keyspace.RangeRequest{Key: key, End: []byte{0}}}},
		{
			Compare: []keyspace.Compare{{Key: key, End: []byte("c"), Target: keyspace.CompareValue, Result: keyspace.CompareNotEqual}},
			Failure: []keyspace.TxnOp{nil, keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.DeleteRequest{Key: key, End: []byte{0}}}}},
		},
	} {
		data, err := proto.Marshal(encoded(txn).GetTxn())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(logpb.Txn)
		if proto.Unmarshal(data, m) != nil {
			return
		}
		text, err := proto.Marshal(&logpb.Command{Op: &logpb.Command_Txn{Txn: m}})
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := entry.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		txn := c.(keyspace.TxnRequest)
		w := newWorld(t)
		defer func() { w.close() }()
		w.serve()
		w.do(1, entry.Grant{Lease: 1, TTL: TickInterval * 100})
		w.do(2, keyspace.PutRequest{Key: key, Value: []byte("1"), Lease: 1})
		before := w.dump()
		reply := w.do(3, txn)
		if reply.Err != nil && w.dump() != before {
			t.Fatalf("%+v failed with %v and left\n%s\nbefore\n%s", txn, reply.Err, w.dump(), before)
		}
		if reply.Err == nil && keyspace.CheckTxn(txn, keyspace.MaxTxnOps) != nil {
			t.Fatalf("%+v was carried out, but %v", txn, keyspace.CheckTxn(txn, keyspace.MaxTxnOps))
		}
		if txn.ReadOnly() && w.dump() != before {
			t.Fatalf("%+v only reads, but left\n%s\nbefore\n%s", txn, w.dump(), before)
		}
		if _, err := w.replica.Store().Txn(t.Context(), txn); txn.ReadOnly() && (err == nil) != (reply.Err == nil) {
			t.Fatalf("%+v is read with %v, and applied with %v", txn, err, reply.Err)
		}
	})
}
