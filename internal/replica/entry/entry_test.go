package entry

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/wire"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maker makes random commands.
type maker struct{ *rand.Rand }

func (r maker) bytes(most int) []byte {
	b := bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(2)*r.IntN(most))
	if len(b) == 0 {
		return nil
	}
	return b
}
func (r maker) text() string   { return string(r.bytes(300)) }
func (r maker) number() uint64 { return r.Uint64() >> r.IntN(64) }
func (r maker) id() lessor.ID  { return lessor.ID(r.number()) }
func (r maker) flag() bool     { return r.IntN(2) > 0 }
func (r maker) ref() lessor.Ref {
	return lessor.Ref{ID: r.id(), Generation: lessor.Generation(r.number())}
}
func (r maker) duration() time.Duration { return time.Duration(r.number()) }

func (r maker) put() keyspace.PutRequest {
	return keyspace.PutRequest{
		Key: r.bytes(9), Value: r.bytes(20_000), Lease: int64(r.id()), PrevKV: r.flag(), IgnoreValue: r.flag(), IgnoreLease: r.flag(),
	}
}

func (r maker) txn(depth int) keyspace.TxnRequest {
	t := keyspace.TxnRequest{Success: []keyspace.TxnOp{}, Failure: []keyspace.TxnOp{}}
	for range r.IntN(3) {
		t.Compare = append(t.Compare, keyspace.Compare{
			Result: keyspace.CompareResult(r.IntN(4)), Target: keyspace.CompareTarget(r.IntN(5)),
			Key: r.bytes(9), End: r.bytes(9), Number: int64(r.number()), Value: r.bytes(9),
		})
	}
	for _, ops := range []*[]keyspace.TxnOp{&t.Success, &t.Failure} {
		for range r.IntN(3) {
			*ops = append(*ops, r.txnOp(depth))
		}
	}
	return t
}

func (r maker) txnOp(depth int) keyspace.TxnOp {
	switch kind := r.IntN(5); {
	case kind == 0:
		return nil
	case kind == 1:
		return r.put()
	case kind == 2:
		return keyspace.DeleteRequest{Key: r.bytes(9), End: r.bytes(9), PrevKV: r.flag()}
	case kind == 3 || depth == 0:
		return keyspace.RangeRequest{
			Key: r.bytes(9), End: r.bytes(9), Limit: int64(r.number()), Revision: int64(r.number()),
			SortOrder: keyspace.SortOrder(r.IntN(3)), SortTarget: keyspace.SortTarget(r.IntN(5)), KeysOnly: r.flag(), CountOnly: r.flag(),
			MinModRevision: int64(r.number()), MaxModRevision: int64(r.number()), MinCreateRevision: int64(r.number()), MaxCreateRevision: int64(r.number()),
		}
	}
	return r.txn(depth - 1)
}

// commands returns one command of each type.
func (r maker) commands() []Command {
	expiries, term, at := make(Expire, 1+r.IntN(3)), r.number(), lessor.Position(r.number())
	for i := range expiries {
		expiries[i] = lessor.Expiry{Ref: r.ref(), Term: term, DecidedAt: at}
	}
	decided := Checkpoint{Quiet: make([]lessor.Checkpoint, 1+r.IntN(3)), Cleared: make([]lessor.Cleared, r.IntN(3))}
	for i := range decided.Quiet {
		decided.Quiet[i] = lessor.Checkpoint{Ref: r.ref(), Term: term, DecidedAt: at, Remaining: r.duration()}
	}
	for i := range decided.Cleared {
		decided.Cleared[i] = lessor.Cleared{Ref: r.ref(), Term: term}
	}
	return []Command{
		r.put(), keyspace.DeleteRequest{Key: r.bytes(9), End: r.bytes(9), PrevKV: r.flag()}, r.txn(4), Compact{Revision: int64(r.number())},
		Grant{Lease: r.id(), TTL: r.duration()}, Revoke{Lease: r.id()}, expiries, decided,
		r.claim(), ownership.Release{Name: r.text(), Lease: r.id()}, ownership.Transfer{Name: r.text(), Lease: r.id()},
		ownership.Revoke{Name: r.text(), Token: int64(r.number()), Note: r.text(), Now: r.flag()},
		ownership.Pin{Name: r.text(), Reason: r.text()}, ownership.Unpin{Name: r.text()},
		ownership.Finish{Name: r.text(), Lease: r.id(), Token: int64(r.number()), Tick: r.tick(), Hold: r.duration()},
		ownership.RaiseMark{Name: r.text(), Lease: r.id(), Token: int64(r.id()), Tick: r.tick()},
		ownership.Prefer{Name: r.text(), Lease: r.id()}, r.rankedClaim(),
		access.Enable{}, access.Disable{}, access.Login{User: r.text(), Digest: [32]byte(append(r.bytes(9), make([]byte, 32)...)), Revision: uint64(r.number())},
		access.AddUser{Name: r.text(), Hash: r.bytes(60), NoPassword: r.flag()}, access.DeleteUser{Name: r.text()},
		access.ChangePassword{Name: r.text(), Hash: r.bytes(60)}, access.GrantRole{User: r.text(), Role: r.text()},
		access.RevokeRole{User: r.text(), Role: r.text()}, access.AddRole{Name: r.text()}, access.DeleteRole{Name: r.text()},
		access.GrantPermission{Role: r.text(), Permission: &access.Permission{Kind: access.Kind(r.number()), Key: r.text(), End: r.text()}},
		access.GrantPermission{Role: r.text()}, access.RevokePermission{Role: r.text(), Key: r.text(), End: r.text()},
		access.SetQuota{User: r.text(), Limits: []access.Limit{{Resource: access.Resource(r.number()), Most: int64(r.number())}, {Most: -2}}},
		access.GrantRight{Role: r.text(), Right: access.Right{Prefix: r.text(), Rights: access.Rights(r.number())}},
		access.RevokeRight{Role: r.text(), Right: access.Right{Prefix: r.text(), Rights: access.Rights(r.number())}},
	}
}

func (r maker) caller() access.Caller {
	return access.Caller{User: r.text(), Revision: uint64(r.number())}
}

// tick returns the text of a tick.
func (r maker) tick() string {
	if r.flag() {
		return backend.TickAt(time.Unix(r.Int64N(1<<32), r.Int64N(1e9))).String()
	}
	return backend.TickNumber(int64(r.number())).String()
}

func (r maker) claim() ownership.Claim {
	return ownership.Claim{Lease: r.id(), TTL: r.duration(), Name: r.text(), Holder: r.bytes(20_000), Wait: r.flag()}
}

func (r maker) rankedClaim() ownership.Claim {
	c := r.claim()
	c.Priority = int32(r.number())
	return c
}

// extremes returns commands with extreme field values.
func extremes() []Command {
	return []Command{
		keyspace.PutRequest{}, keyspace.DeleteRequest{}, keyspace.TxnRequest{Success: []keyspace.TxnOp{}, Failure: []keyspace.TxnOp{}},
		ownership.Claim{}, ownership.Release{}, ownership.Claim{Lease: -1, TTL: -1}, ownership.Release{Lease: math.MinInt64}, Compact{Revision: -1},
		Grant{}, Grant{Lease: math.MinInt64, TTL: -1},
	}
}

func someCommands() []Command {
	all, r := extremes(), maker{rand.New(rand.NewPCG(3, 4))}
	for range 100 {
		all = append(all, r.commands()...)
	}
	return all
}

// text returns a command's bytes in an entry.
func text(c Command) []byte {
	p := Prepare(c, access.Caller{})
	return p.appendTo(nil)
}

func prepareAll(all []Command) []*Prepared {
	list := make([]*Prepared, len(all))
	for i, c := range all {
		p := Prepare(c, access.Caller{})
		list[i] = &p
	}
	return list
}

func TestDecodeReturnsEveryCommandAsItWasPrepared(t *testing.T) {
	for _, want := range someCommands() {
		got, _, err := Decode(text(want))
		if err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if claim, ok := got.(ownership.Claim); ok && len(claim.Holder) == 0 {
			claim.Holder = nil
			got = claim
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v came back as\n%+v", want, got)
		}
	}
}

func TestEntriesCarryTheCallersOfCommands(t *testing.T) {
	r := maker{rand.New(rand.NewPCG(5, 6))}
	for _, c := range someCommands() {
		by := r.caller()
		p, m := Prepare(c, by), messageOf(c)
		if by != (access.Caller{}) {
			m.Caller = &logpb.Caller{User: []byte(by.User), Revision: by.Revision}
		}
		bytesOf, written := p.appendTo(nil), new(logpb.Command)
		if err := proto.Unmarshal(bytesOf, written); err != nil || !proto.Equal(written, m) || p.Size != len(bytesOf) {
			t.Fatalf("%+v of %+v became %v of %d bytes, not %v: %v", c, by, written, p.Size, m, err)
		}
		if got, caller, err := Decode(bytesOf); caller != by || err != nil || reflect.TypeOf(got) != reflect.TypeOf(c) {
			t.Fatalf("%+v of %+v came back as %+v of %+v: %v", c, by, got, caller, err)
		}
	}
}

// A caller with a field of a later version is still the caller, and a command after it is not lost.
func TestDecodeReadsACallerInAnyForm(t *testing.T) {
	claim := ownership.Claim{Lease: 7, TTL: 5, Name: "n", Holder: []byte("h")}
	later := append(wire.Marshal(&logpb.Caller{User: []byte("u"), Revision: 3}), 0x78, 1) // field 15
	before := append(wire.AppendEnclosed(nil, commandCaller, len(later)), later...)
	for name, bytesOf := range map[string][]byte{
		"the caller behind the command":      append(text(claim), before...),
		"the caller in front of the command": append(slices.Clone(before), text(claim)...),
	} {
		got, by, err := Decode(bytesOf)
		if err != nil || !reflect.DeepEqual(got, claim) || by != (access.Caller{User: "u", Revision: 3}) {
			t.Errorf("%s: %+v of %+v, %v", name, got, by, err)
		}
	}
}

func TestCompactDoesNotCarryPhysical(t *testing.T) {
	if got, _, err := Decode(text(Compact{Revision: 7, Physical: true})); got != (Compact{Revision: 7}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEntriesHaveTheBytesOfTheFormat(t *testing.T) {
	all := someCommands()
	want := &logpb.Entry{Sequence: 7, WallMs: 1_700_000_000_000, Needs: uint32(gate.Access)}
	for _, c := range all {
		m := messageOf(c)
		if p := Prepare(c, access.Caller{}); !bytes.Equal(text(c), wire.Marshal(m)) || p.Size != len(text(c)) {
			t.Fatalf("%+v became %x of %d bytes, not %x", c, text(c), p.Size, wire.Marshal(m))
		}
		want.Commands = append(want.Commands, m)
	}
	entry := New(Header{Sequence: want.Sequence, Wall: want.WallMs}, slices.Values(prepareAll(all)))
	if !bytes.Equal(entry, wire.Marshal(want)) || cap(entry) != len(entry) {
		t.Error("an entry is not what the format says, or its size was not known")
	}
	checkDecoding(t, entry)
	checkDecoding(t, New(Header{}, slices.Values(prepareAll(nil))))
}

func TestUnknownCommandsAreRefused(t *testing.T) {
	for name, text := range map[string][]byte{
		"an operation of a later version": {0xfa, 0x01, 0x00},
		"no operation":                    {},
		"bytes that are no message":       {0xff},
	} {
		if c, _, err := Decode(text); err == nil {
			t.Errorf("%s is %+v", name, c)
		}
	}
}

func TestWeightCountsLeasesAndOperations(t *testing.T) {
	for want, c := range map[int]Command{
		1: keyspace.TxnRequest{},
		2: Expire{{}, {}},
		3: Checkpoint{Quiet: make([]lessor.Checkpoint, 1), Cleared: make([]lessor.Cleared, 2)},
		4: keyspace.TxnRequest{Success: []keyspace.TxnOp{nil, nil}, Failure: []keyspace.TxnOp{nil, nil}},
	} {
		if got := Weight(c); got != want {
			t.Errorf("%+v weighs %d, not %d", c, got, want)
		}
	}
	if got := Weight(ownership.Claim{}); got != 1 {
		t.Errorf("a claim weighs %d", got)
	}
}

func TestPayloadKeepsNoEarlierEntry(t *testing.T) {
	c := prepareAll([]Command{ownership.Release{Name: "n", Lease: 7}})[0]
	var p Payload
	for _, entry := range [][]byte{New(Header{Sequence: 1}, slices.Values([]*Prepared{c, c, c})), New(Header{Sequence: 2}, slices.Values([]*Prepared{c}))} {
		if err := p.Decode(entry); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.Commands) != 1 || cap(p.Commands) < 3 {
		t.Fatalf("%d commands in memory for %d", len(p.Commands), cap(p.Commands))
	}
	if rest := p.Commands[1:cap(p.Commands)]; slices.ContainsFunc(rest, func(c []byte) bool { return c != nil }) {
		t.Errorf("kept: %x", rest)
	}
}

// checkDecoding compares the results of this package's decoders with those of package proto.
func checkDecoding(t *testing.T, text []byte) {
	t.Helper()
	var got Payload
	want := new(logpb.Entry)
	err := got.Decode(text)
	if proto.Unmarshal(text, want) != nil {
		want = nil // one of its commands may be invalid
	}
	if err != nil {
		if want != nil {
			t.Errorf("%x is an entry, and was not read: %v", text, err)
		}
		return
	}
	if want != nil && (got.Sequence != want.Sequence || got.Wall != want.WallMs || len(got.Commands) != len(want.Commands)) {
		t.Errorf("%x was read as %+v", text, got)
	}
	for _, text := range got.Commands {
		m := new(logpb.Command)
		known := proto.Unmarshal(text, m) == nil
		if c, ok := decodeClaim(text); ok {
			if w, isClaim := commandOf(m).(ownership.Claim); !known || !isClaim || !bytes.Equal(c.Holder, w.Holder) ||
				c.Lease != w.Lease || c.TTL != w.TTL || c.Name != w.Name || c.Wait != w.Wait {
				t.Errorf("%x was read as %+v, and is %+v", text, c, m)
			}
		}
		if c, ok := decodeGrant(text); ok && (!known || commandOf(m) != Command(c)) {
			t.Errorf("%x was read as %+v, and is %+v", text, c, m)
		}
		if c, ok := decodeRelease(text); ok && (!known || commandOf(m) != Command(c)) {
			t.Errorf("%x was read as %+v, and is %+v", text, c, m)
		}
	}
}

func FuzzEntryDecoding(f *testing.F) {
	for _, c := range append(extremes(), maker{rand.New(rand.NewPCG(1, 2))}.commands()...) {
		f.Add(New(Header{Sequence: 1, Wall: 2, States: 2, Needs: 3}, slices.Values(prepareAll([]Command{c}))))
	}
	f.Add([]byte("\x12\x06\x4a\x04\x08\x01\x08\x02"))         // an id twice
	f.Add([]byte("\x12\x06\x1a\x04\x10\x01\x10\x02"))         // a TTL twice
	f.Add([]byte("\x12\x08\x4a\x02\x08\x01\x4a\x02\x10\x02")) // a claim in two parts
	f.Add([]byte("\x12\x06\x4a\x04\x08\x01\x30\x02"))         // a field that is not known
	f.Add([]byte("\x12\x04\x4a\x02\x18\x01"))                 // one of another kind
	f.Fuzz(func(t *testing.T, text []byte) { checkDecoding(t, text) })
}

var aClaim = ownership.Claim{Lease: 7, TTL: time.Minute, Name: "jobs/nightly-backup", Holder: []byte(`{"host":"db1","pid":4711}`), Wait: true}

func BenchmarkClaimFieldByField(b *testing.B) {
	b.ReportAllocs()
	list := prepareAll([]Command{aClaim})
	for b.Loop() {
		*list[0] = Prepare(aClaim, access.Caller{})
		var p Payload
		if err := p.Decode(New(Header{Sequence: 1}, slices.Values(list))); err != nil {
			b.Fatal(err)
		}
		if _, _, err := Decode(p.Commands[0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClaimByPackageProto(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		text := wire.Marshal(&logpb.Entry{Sequence: 1, Commands: []*logpb.Command{messageOf(aClaim)}})
		m := new(logpb.Entry)
		if err := proto.Unmarshal(text, m); err != nil {
			b.Fatal(err)
		}
		if commandOf(m.Commands[0]) == nil {
			b.Fatal("no command")
		}
	}
}
