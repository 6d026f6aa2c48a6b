package entry

import (
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// replacing returns a transaction in the form in which the server replaces the mark of n.
func replacing(op keyspace.TxnOp) keyspace.TxnRequest {
	return keyspace.TxnRequest{Compare: []keyspace.Compare{{Target: keyspace.CompareMod, Key: []byte(backend.MarkPrefix + "n"), Number: 4}}, Success: []keyspace.TxnOp{op}}
}

// A transaction replaces a mark as an act only if it has the form and an origin. Then its entry needs members that record it.
func TestReplacedMarkIsAnActOfItsOrigin(t *testing.T) {
	key := []byte(backend.MarkPrefix + "n")
	set := keyspace.PutRequest{Key: key, Value: []byte("0 5")}
	from := access.Caller{User: "u", Revision: 3, Origin: access.Origin{Address: "10.0.0.1"}}
	with := func(change func(*keyspace.TxnRequest)) keyspace.TxnRequest {
		c := replacing(set)
		change(&c)
		return c
	}
	for what, c := range map[string]struct {
		command     Command
		by          access.Caller
		name, value string
	}{
		"a mark is set":        {replacing(set), from, "n", "0 5"},
		"a mark is removed":    {replacing(keyspace.DeleteRequest{Key: key}), from, "n", ""},
		"no origin":            {replacing(set), access.Caller{User: "u", Revision: 3}, "", ""},
		"a put":                {set, from, "", ""},
		"an interval":          {replacing(keyspace.DeleteRequest{Key: key, End: []byte("z")}), from, "", ""},
		"a reading":            {replacing(keyspace.RangeRequest{Key: key}), from, "", ""},
		"another key":          {replacing(put("k", "v")), from, "", ""},
		"the mark of another":  {replacing(put(backend.MarkPrefix+"m", "0 5")), from, "", ""},
		"no mark":              {keyspace.TxnRequest{Compare: []keyspace.Compare{{Key: []byte("k")}}, Success: []keyspace.TxnOp{put("k", "v")}}, from, "", ""},
		"no condition":         {with(func(c *keyspace.TxnRequest) { c.Compare = nil }), from, "", ""},
		"no write":             {with(func(c *keyspace.TxnRequest) { c.Success = nil }), from, "", ""},
		"two conditions":       {with(func(c *keyspace.TxnRequest) { c.Compare = slices.Repeat(c.Compare, 2) }), from, "", ""},
		"two writes":           {with(func(c *keyspace.TxnRequest) { c.Success = append(c.Success, put("k", "v")) }), from, "", ""},
		"a write in its place": {with(func(c *keyspace.TxnRequest) { c.Failure = []keyspace.TxnOp{put("k", "v")} }), from, "", ""},
	} {
		name, value, ok := MarkAct(c.command, c.by)
		if name != c.name || string(value) != c.value || ok != (c.name != "") {
			t.Errorf("%s: %q, %q, %v", what, name, value, ok)
		}
		p := Prepare(c.command, c.by)
		needs := gate.Access
		if ok {
			needs = gate.MarkActs
		}
		var decoded Payload
		if err := decoded.Decode(New(Header{}, slices.Values([]*Prepared{&p}))); err != nil || decoded.Needs != needs {
			t.Errorf("%s: the entry needs version %d, %v", what, decoded.Needs, err)
		}
		read, by, err := Decode(decoded.Commands[0])
		if again, _, still := MarkAct(read, by); err != nil || again != name || still != ok {
			t.Errorf("%s: decoded it is of %q, %v, %v", what, again, still, err)
		}
	}
}
