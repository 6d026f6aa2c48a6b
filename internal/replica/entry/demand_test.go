package entry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/wire"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func put(key, value string) keyspace.PutRequest {
	return keyspace.PutRequest{Key: []byte(key), Value: []byte(value)}
}

func TestLargeAndLongCommandsAreBulk(t *testing.T) {
	large := strings.Repeat("v", BulkBytes)
	// etcd's recipe of a lock asks for the owner, whose key is the oldest below the name.
	lock := keyspace.TxnRequest{
		Compare: []keyspace.Compare{{Key: []byte("name/7"), Target: keyspace.CompareCreate}},
		Success: []keyspace.TxnOp{put("name/7", ""), keyspace.RangeRequest{Key: []byte("name/"), End: []byte("name0"), Limit: 1}},
	}
	within := func(op keyspace.TxnOp) keyspace.TxnRequest {
		return keyspace.TxnRequest{Failure: []keyspace.TxnOp{keyspace.TxnRequest{Success: []keyspace.TxnOp{op}}}}
	}
	for _, c := range []struct {
		name string
		op   Command
		bulk bool
	}{
		{"a small put", put("k", "v"), false},
		{"a large put", put("k", large), true},
		{"a delete", keyspace.DeleteRequest{Key: []byte("k")}, false},
		{"a delete of an interval", keyspace.DeleteRequest{Key: []byte("a"), End: []byte("z")}, true},
		{"a lock", lock, false},
		{"a large put within", within(put("k", large)), true},
		{"a range within", within(keyspace.RangeRequest{Key: []byte("a"), End: []byte("z")}), true},
		{"many operations", keyspace.TxnRequest{Success: slices.Repeat([]keyspace.TxnOp{keyspace.RangeRequest{Key: []byte("k")}}, bulkOps)}, true},
		{"a claim with a large card", ownership.Claim{Lease: 1, TTL: time.Second, Name: "n", Holder: []byte(large)}, false},
		{"the end of a lease", Revoke{Lease: lessor.ID(1)}, false},
	} {
		if got := IsBulk(c.op); got != c.bulk {
			t.Errorf("%s: %v, want %v", c.name, got, c.bulk)
		}
	}
}

// A mark takes space, and a finish without a tick takes none: a holder can always end its tenure.
func TestMarksNeedSpace(t *testing.T) {
	for _, c := range []struct {
		op    Command
		needs bool
	}{
		{ownership.Finish{Tick: "1"}, true}, {ownership.Finish{Hold: time.Second}, false}, {ownership.Release{}, false}, {ownership.RaiseMark{Tick: "1"}, true},
	} {
		if got := NeedsSpace(c.op); got != c.needs {
			t.Errorf("%T%+v: %v", c.op, c.op, got)
		}
	}
}

// A text that is no tick makes a command unreadable, so that no member applies something else.
func TestCommandsWithoutATickAreUnreadable(t *testing.T) {
	for _, m := range []*logpb.Command{
		{Op: &logpb.Command_Finish{Finish: &logpb.Finish{Tick: []byte("soon")}}},
		{Op: &logpb.Command_RaiseMark{RaiseMark: &logpb.RaiseMark{Tick: []byte("soon")}}},
		{Op: &logpb.Command_RaiseMark{RaiseMark: &logpb.RaiseMark{}}},
	} {
		if c, _, err := Decode(wire.Marshal(m)); err == nil {
			t.Errorf("%v is read as %+v", m, c)
		}
	}
}
