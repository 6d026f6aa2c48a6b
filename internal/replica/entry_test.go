package replica

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/wire"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// text is a command as it is in an entry.
func text(p pending) []byte { return appendOp(nil, p.op, p.encoded) }

// decoded is a command as it comes out of the log.
func decoded(t *testing.T, op Op) *logpb.Command {
	t.Helper()
	command := new(logpb.Command)
	if err := proto.Unmarshal(text(newPending(1, op)), command); err != nil {
		t.Fatal(err)
	}
	return command
}

// someOps are claims and releases of every shape, and others.
func someOps() []Op {
	rng := rand.New(rand.NewPCG(3, 4))
	ops := []Op{putKey("k"), Grant{5, time.Hour}, keyspace.TxnRequest{}, ownership.Claim{}, ownership.Release{}}
	for range 300 {
		name := string(bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(4)*rng.IntN(100)))
		id, ttl := lessor.ID(rng.Uint64()>>rng.IntN(64)), time.Duration(rng.Uint64()>>rng.IntN(64))
		ops = append(ops, ownership.Release{Name: name, Lease: id}, ownership.Claim{
			Lease: id, TTL: ttl, Name: name, Holder: bytes.Repeat([]byte("x"), rng.IntN(3)*rng.IntN(20000)), Wait: rng.IntN(2) > 0,
		})
	}
	return append(ops, ownership.Claim{Lease: -1, TTL: -1}, ownership.Release{Lease: math.MinInt64})
}

// What is put into bytes by hand is what the format says, and comes back as it was.
func TestEntriesAreOfTheFormat(t *testing.T) {
	var all []pending
	want := &logpb.Entry{Sequence: 7, WallMs: 1_700_000_000_000}
	for _, op := range someOps() {
		p := newPending(1, op)
		if plain := wire.Marshal(encode(op)); !bytes.Equal(text(p), plain) || p.size != len(plain) {
			t.Fatalf("%+v became %x of %d bytes, not %x", op, text(p), p.size, plain)
		}
		claim, isClaim := decodeClaim(text(p))
		release, isRelease := decodeRelease(text(p))
		var got Op
		switch {
		case isClaim && !isRelease:
			got = claim
		case isRelease && !isClaim:
			got = release
		}
		switch op := op.(type) {
		case ownership.Claim, ownership.Release:
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", op) {
				t.Fatalf("%+v came back as %+v", op, got)
			}
		default:
			if got != nil {
				t.Fatalf("%+v came back as %+v", op, got)
			}
		}
		all, want.Commands = append(all, p), append(want.Commands, encode(op))
	}
	entry := encodeEntry(want.Sequence, want.WallMs, all)
	if !bytes.Equal(entry, wire.Marshal(want)) || cap(entry) != len(entry) {
		t.Error("an entry is not what the format says, or its size was not known")
	}
	checkDecoding(t, entry)
	checkDecoding(t, encodeEntry(0, 0, nil))
}

// checkDecoding compares what is taken out of bytes by hand with what the format says is in them.
func checkDecoding(t *testing.T, text []byte) {
	t.Helper()
	var got payload
	want := new(logpb.Entry)
	err := got.decode(text)
	if proto.Unmarshal(text, want) != nil {
		want = nil // it may be a command that cannot be read
	}
	if err != nil {
		if want != nil {
			t.Errorf("%x is an entry, and was not read: %v", text, err)
		}
		return
	}
	if want != nil && (got.sequence != want.Sequence || got.wall != want.WallMs || len(got.commands) != len(want.Commands)) {
		t.Errorf("%x was read as %+v", text, got)
	}
	for _, command := range got.commands {
		m := new(logpb.Command)
		known := proto.Unmarshal(command, m) == nil
		if op, ok := decodeClaim(command); ok {
			w := m.GetClaim()
			same := ownership.Claim{Lease: lessor.ID(w.GetId()), TTL: time.Duration(w.GetTtlNs()), Name: string(w.GetName()), Holder: w.GetHolder(), Wait: w.GetWait()}
			if !known || w == nil || fmt.Sprintf("%+v", op) != fmt.Sprintf("%+v", same) {
				t.Errorf("%x was read as %+v, and is %+v", command, op, m)
			}
		}
		if op, ok := decodeRelease(command); ok {
			w := m.GetRelease()
			if !known || w == nil || op != (ownership.Release{Name: string(w.GetName()), Lease: lessor.ID(w.GetId())}) {
				t.Errorf("%x was read as %+v, and is %+v", command, op, m)
			}
		}
	}
}

func FuzzEntry(f *testing.F) {
	for _, op := range someOps()[:40] {
		f.Add(encodeEntry(1, 2, []pending{newPending(1, op)}))
	}
	f.Add([]byte("\x12\x06\x4a\x04\x08\x01\x08\x02"))         // an id twice
	f.Add([]byte("\x12\x08\x4a\x02\x08\x01\x4a\x02\x10\x02")) // a claim in two parts
	f.Add([]byte("\x12\x06\x4a\x04\x08\x01\x30\x02"))         // a field that is not known
	f.Add([]byte("\x12\x04\x4a\x02\x18\x01"))                 // one of another kind
	f.Fuzz(func(t *testing.T, text []byte) { checkDecoding(t, text) })
}
