package entry

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/wire"
)

// Each test here names guards of what decodes entries, and fails if exactly one of them is removed.

// fieldOf returns a field of the given kind.
func fieldOf(number protowire.Number, kind protowire.Type) []byte {
	text := protowire.AppendTag(nil, number, kind)
	if kind == protowire.BytesType {
		return protowire.AppendBytes(text, []byte{8, 1})
	}
	return protowire.AppendVarint(text, 1)
}

// A field of another number or kind is none of an entry's own.
func TestEntryHasOnlyItsOwnFields(t *testing.T) {
	for _, c := range []struct {
		text []byte
		want Payload
	}{
		{fieldOf(entrySequence, protowire.VarintType), Payload{Header: Header{Sequence: 1}}},
		{fieldOf(entryWall, protowire.VarintType), Payload{Header: Header{Wall: 1}}},
		{fieldOf(entryCommands, protowire.BytesType), Payload{Commands: make([][]byte, 1)}},
		{fieldOf(entryStates, protowire.VarintType), Payload{Header: Header{States: 1}}},
		{fieldOf(entryNeeds, protowire.VarintType), Payload{Header: Header{Needs: 1}}},
		{fieldOf(entryStates, protowire.BytesType), Payload{}},
		{fieldOf(entryNeeds, protowire.BytesType), Payload{}},
		{fieldOf(entrySequence, protowire.BytesType), Payload{}},
		{fieldOf(entryWall, protowire.BytesType), Payload{}},
		{fieldOf(entryCommands, protowire.VarintType), Payload{}},
		{fieldOf(9, protowire.VarintType), Payload{}},
		{fieldOf(9, protowire.BytesType), Payload{}},
	} {
		var p Payload
		if err := p.Decode(c.text); err != nil {
			t.Fatal(err)
		}
		if p.Sequence != c.want.Sequence || p.Wall != c.want.Wall || len(p.Commands) != len(c.want.Commands) {
			t.Errorf("%x is read as %+v", c.text, p)
		}
	}
}

// The short way to read a claim or a release is for what it knows only. Everything else goes the general way.
func TestUnknownClaimsGoTheGeneralWay(t *testing.T) {
	enclosed := func(number protowire.Number, inside []byte) []byte {
		return append(wire.AppendEnclosed(nil, number, len(inside)), inside...)
	}
	varint, bytes := protowire.VarintType, protowire.BytesType
	for number, kind := range map[protowire.Number]protowire.Type{claimID: varint, claimTTL: varint, claimWait: varint, claimName: bytes, claimHolder: bytes} {
		if _, ok := decodeClaim(enclosed(commandClaim, fieldOf(number, kind))); !ok {
			t.Errorf("field %d of a claim is not known", number)
		}
		other := varint + bytes - kind
		if op, ok := decodeClaim(enclosed(commandClaim, fieldOf(number, other))); ok {
			t.Errorf("field %d of another kind is read as %+v", number, op)
		}
	}
	for number, kind := range map[protowire.Number]protowire.Type{releaseID: varint, releaseName: bytes} {
		if _, ok := decodeRelease(enclosed(commandRelease, fieldOf(number, kind))); !ok {
			t.Errorf("field %d of a release is not known", number)
		}
		if op, ok := decodeRelease(enclosed(commandRelease, fieldOf(number, varint+bytes-kind))); ok {
			t.Errorf("field %d of another kind is read as %+v", number, op)
		}
	}
	for _, unknown := range []protowire.Type{varint, bytes} {
		if op, ok := decodeClaim(enclosed(commandClaim, fieldOf(9, unknown))); ok {
			t.Errorf("an unknown field is read as %+v", op)
		}
		if op, ok := decodeRelease(enclosed(commandRelease, fieldOf(9, unknown))); ok {
			t.Errorf("an unknown field is read as %+v", op)
		}
	}
	release := enclosed(commandRelease, fieldOf(releaseName, bytes))
	if op, ok := decodeRelease(append(release, fieldOf(releaseID, varint)...)); ok {
		t.Errorf("with something behind it a release is read as %+v", op)
	}
	id := protowire.AppendVarint(protowire.AppendTag(nil, releaseID, varint), 1)
	number := append(protowire.AppendVarint(protowire.AppendTag(nil, commandRelease, varint), uint64(len(id))), id...)
	if op, ok := decodeRelease(number); ok {
		t.Errorf("a number is read as %+v", op)
	}
	if got, ok := decodeRelease(release); !ok || got != (ownership.Release{Name: "\x08\x01"}) {
		t.Errorf("a release is read as %+v, %v", got, ok)
	}
}

// An operation that reads or deletes an interval of keys is bulk, however it is wrapped; one with a small limit is not.
func TestIntervalsAreBulk(t *testing.T) {
	key, end := []byte("a"), []byte("b")
	all := keyspace.RangeRequest{Key: key, End: end}
	limited := func(n int64) keyspace.RangeRequest { return keyspace.RangeRequest{Key: key, End: end, Limit: n} }
	nested := func(op keyspace.TxnOp) keyspace.TxnRequest { return keyspace.TxnRequest{Failure: []keyspace.TxnOp{op}} }
	for _, c := range []struct {
		what string
		op   Command
		bulk bool
	}{
		{"a put", put("k", "v"), false},
		{"a deletion of one key", keyspace.DeleteRequest{Key: key}, false},
		{"a deletion of an interval", keyspace.DeleteRequest{Key: key, End: end}, true},
		{"a txn that reads one key", nested(keyspace.RangeRequest{Key: key, Limit: SmallRange + 1}), false},
		{"a txn that reads an interval", nested(all), true},
		{"a txn that reads some keys", nested(limited(SmallRange)), false},
		{"a txn that reads many keys", nested(limited(SmallRange + 1)), true},
		{"a txn in a txn", nested(nested(all)), true},
		{"a txn that deletes one key", nested(keyspace.DeleteRequest{Key: key}), false},
		{"a txn that deletes an interval", nested(keyspace.DeleteRequest{Key: key, End: end}), true},
		{"a txn that compares one key", keyspace.TxnRequest{Compare: []keyspace.Compare{{Key: key}}}, false},
		{"a txn that compares an interval", keyspace.TxnRequest{Compare: []keyspace.Compare{{Key: key, End: end}}}, true},
		{"a claim", ownership.Claim{}, false},
	} {
		if got := IsBulk(c.op); got != c.bulk {
			t.Errorf("%s: bulk is %v", c.what, got)
		}
	}
}
