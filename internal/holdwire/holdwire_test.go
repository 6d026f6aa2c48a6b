package holdwire

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// header is a valid header traceparent.
const header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// anyName draws short names, and names so long that their sizes take two bytes and buffers have to grow.
var anyName = rapid.OneOf(rapid.StringN(0, 20, 60), rapid.StringN(100, 600, -1), rapid.Just(strings.Repeat("é", 300)))

// anyTraceparent draws mostly the empty text, and else one that need not be a valid header.
var anyTraceparent = rapid.OneOf(rapid.Just(""), rapid.StringN(0, 60, 60), rapid.Just(header))

func anyHolder(t *rapid.T) *leasekeeperv1.Holder {
	if rapid.Bool().Draw(t, "no holder") {
		return nil
	}
	h := &leasekeeperv1.Holder{Id: rapid.String().Draw(t, "id"), Pid: rapid.Int64().Draw(t, "pid"), Text: rapid.String().Draw(t, "text")}
	if rapid.Bool().Draw(t, "started") {
		h.Started = &timestamppb.Timestamp{Seconds: rapid.Int64().Draw(t, "seconds"), Nanos: rapid.Int32().Draw(t, "nanos")}
	}
	return h
}

// plainRequest draws a message that DecodeRequest decodes.
func plainRequest(t *rapid.T) *leasekeeperv1.HoldRequest {
	req := new(leasekeeperv1.HoldRequest)
	most := rapid.SampledFrom([]int{2, 8, MaxReused + 6}).Draw(t, "most")
	for range rapid.IntRange(0, most).Draw(t, "releases") {
		req.Releases = append(req.Releases, &leasekeeperv1.HoldRelease{
			Number: rapid.Uint64().Draw(t, "number"), Name: anyName.Draw(t, "name"), Lease: rapid.Int64().Draw(t, "lease"),
			Traceparent: anyTraceparent.Draw(t, "traceparent"),
		})
	}
	for range rapid.IntRange(0, most).Draw(t, "claims") {
		req.Claims = append(req.Claims, &leasekeeperv1.HoldClaim{
			Number: rapid.Uint64().Draw(t, "number"), Name: anyName.Draw(t, "name"), Lease: rapid.Int64().Draw(t, "lease"),
			TtlMs: rapid.Int64().Draw(t, "ttl"), Wait: rapid.Bool().Draw(t, "wait"),
			Priority: rapid.Int32().Draw(t, "priority"), Traceparent: anyTraceparent.Draw(t, "traceparent"),
		})
	}
	return req
}

// addUnknown adds a field that this version does not know.
func addUnknown(m proto.Message) {
	m.ProtoReflect().SetUnknown(protoreflect.RawFields(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)))
}

// addRare adds something that DecodeRequest leaves to package proto.
func addRare(t *rapid.T, req *leasekeeperv1.HoldRequest) {
	claim := &leasekeeperv1.HoldClaim{Name: "n"}
	switch rapid.IntRange(0, 5).Draw(t, "rare") {
	case 0:
		req.Holder = &leasekeeperv1.Holder{Id: "me"}
	case 1:
		req.Forget = []uint64{1, 1 << 60}
	case 2:
		addUnknown(req)
	case 3:
		claim.Holder = &leasekeeperv1.Holder{Id: "other"}
		req.Claims = append(req.Claims, claim)
	case 4:
		addUnknown(claim)
		req.Claims = append(req.Claims, claim)
	case 5:
		release := &leasekeeperv1.HoldRelease{Name: "n"}
		addUnknown(release)
		req.Releases = append(req.Releases, release)
	}
}

// A message decoded into one that was used before is the one that was encoded, and names from earlier messages stay.
func TestRequestIsDecodedAsByProto(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := new(leasekeeperv1.HoldRequest)
		var names, want []string
		for range 4 {
			req := plainRequest(t)
			plain := rapid.Bool().Draw(t, "plain")
			if !plain {
				addRare(t, req)
			}
			text, err := proto.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			if DecodeRequest(text, got) != plain {
				t.Fatalf("a message is decoded: %v", !plain)
			}
			if !plain {
				continue // got is void, and is decoded into all the same
			}
			if !proto.Equal(got, req) {
				t.Fatalf("%v, want %v", got, req)
			}
			for i, c := range req.Claims {
				names, want = append(names, got.Claims[i].Name), append(want, c.Name)
			}
			clear(text) // as gRPC does when it uses the buffer again
		}
		for i := range want {
			if names[i] != want[i] {
				t.Fatalf("the name %q became %q", want[i], names[i])
			}
		}
	})
}

func anyAnswer(t *rapid.T, plain bool) *leasekeeperv1.HoldAnswer {
	a := &leasekeeperv1.HoldAnswer{
		Number: rapid.Uint64().Draw(t, "number"), State: leasekeeperv1.HoldAnswer_State(rapid.Int32Range(-1, 7).Draw(t, "state")),
		TtlMs: rapid.Int64().Draw(t, "ttl"), Token: rapid.Uint64().Draw(t, "token"), Place: rapid.Int32().Draw(t, "place"),
		Ended: rapid.Bool().Draw(t, "ended"), Overtaken: rapid.Bool().Draw(t, "overtaken"),
	}
	if plain {
		return a
	}
	switch rapid.IntRange(0, 2).Draw(t, "rare") {
	case 0:
		a.Code, a.Reason, a.Error = 14, leasekeeperv1.ErrorReason_LOST, "gone"
	case 1:
		a.Current = &leasekeeperv1.NameInfo{Name: "x", Held: true}
	case 2:
		addUnknown(a)
	}
	return a
}

func TestResponseIsDecodedAsByProto(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := new(leasekeeperv1.HoldResponse)
		for range 4 {
			resp := new(leasekeeperv1.HoldResponse)
			for range rapid.IntRange(0, 5).Draw(t, "answers") {
				resp.Answers = append(resp.Answers, anyAnswer(t, true))
			}
			plain := rapid.Bool().Draw(t, "plain")
			if !plain {
				resp.Answers = append(resp.Answers, anyAnswer(t, false))
			}
			text, err := proto.Marshal(resp)
			if err != nil {
				t.Fatal(err)
			}
			if DecodeResponse(text, got) != plain {
				t.Fatalf("a message is decoded: %v", !plain)
			}
			if plain && !proto.Equal(got, resp) {
				t.Fatalf("%v, want %v", got, resp)
			}
		}
	})
}

// The bytes are those of package proto, and RequestRoom has room for them if there are no holders.
func TestRequestIsEncodedAsByProto(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := plainRequest(t)
		req.Forget = rapid.SliceOfN(rapid.Uint64(), 0, 300).Draw(t, "forget")
		text, ok := AppendRequest(nil, req)
		if room := RequestRoom(req); !ok || len(text) > room {
			t.Fatalf("%d bytes do not fit into %d", len(text), room)
		}
		req.Holder = anyHolder(t)
		for _, c := range req.Claims {
			c.Holder = anyHolder(t)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := AppendRequest([]byte("x"), req)
		if !ok || !bytes.Equal(got, append([]byte("x"), want...)) {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

// A field that is added to one of these messages must be added here too.
func TestEveryFieldOfARequestIsEncoded(t *testing.T) {
	for _, c := range []struct {
		m      proto.Message
		fields int
	}{{new(leasekeeperv1.HoldRequest), 4}, {new(leasekeeperv1.HoldRelease), 4}, {new(leasekeeperv1.HoldClaim), 8}} {
		if d := c.m.ProtoReflect().Descriptor(); d.Fields().Len() != c.fields {
			t.Errorf("%s has %d fields, and %d are encoded", d.Name(), d.Fields().Len(), c.fields)
		}
	}
}

func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	const bad = "\xff"
	for what, req := range map[string]*leasekeeperv1.HoldRequest{
		"a release":         {Releases: []*leasekeeperv1.HoldRelease{{Name: bad}}},
		"a claim":           {Claims: []*leasekeeperv1.HoldClaim{{Name: bad}}},
		"a release's trace": {Releases: []*leasekeeperv1.HoldRelease{{Traceparent: bad}}},
		"a claim's trace":   {Claims: []*leasekeeperv1.HoldClaim{{Traceparent: bad}}},
		"a holder":          {Holder: &leasekeeperv1.Holder{Id: bad}},
		"a claim's holder":  {Claims: []*leasekeeperv1.HoldClaim{{Holder: &leasekeeperv1.Holder{Id: bad}}}},
	} {
		if _, ok := AppendRequest(nil, req); ok {
			t.Errorf("%s is encoded", what)
		}
	}
	for what, text := range map[string][]byte{
		"a release":         {requestReleases<<3 | 2, 3, namedName<<3 | 2, 1, 0xff},
		"a claim":           {requestClaims<<3 | 2, 3, namedName<<3 | 2, 1, 0xff},
		"a release's trace": {requestReleases<<3 | 2, 3, releaseTraceparent<<3 | 2, 1, 0xff},
		"a claim's trace":   {requestClaims<<3 | 2, 3, claimTraceparent<<3 | 2, 1, 0xff},
	} {
		if DecodeRequest(text, new(leasekeeperv1.HoldRequest)) {
			t.Errorf("%s is decoded", what)
		}
	}
}

// A large message does not keep its memory, and a small one does.
func TestSmallRequestsAreReused(t *testing.T) {
	got := new(leasekeeperv1.HoldRequest)
	decode := func(n int) *leasekeeperv1.HoldClaim {
		req := new(leasekeeperv1.HoldRequest)
		for range n {
			req.Claims = append(req.Claims, &leasekeeperv1.HoldClaim{Name: "n"})
		}
		if text, ok := AppendRequest(nil, req); !ok || !DecodeRequest(text, got) {
			t.Fatal("the message is not plain")
		}
		return got.Claims[0]
	}
	first := decode(8)
	if decode(3) != first {
		t.Error("the claims of a small message are not reused")
	}
	if name := got.Claims[:8][7].Name; name != "" {
		t.Errorf("a claim that is not in use keeps the name %q", name)
	}
	large := decode(MaxReused + 1)
	if decode(1) == large || cap(got.Claims) > MaxReused {
		t.Error("the claims of a large message are reused")
	}
}

func TestShortNamesShareOneCopy(t *testing.T) {
	req, _ := message()
	req.Claims, req.Releases = req.Claims[:8], nil
	text, ok := AppendRequest(nil, req)
	got := new(leasekeeperv1.HoldRequest)
	if !ok || len(text) > maxSharedText || !DecodeRequest(text, got) {
		t.Fatal("the message is not plain, or too large")
	}
	if copies := testing.AllocsPerRun(100, func() { DecodeRequest(text, got) }); copies != 1 {
		t.Errorf("%v allocations for %d names", copies, len(req.Claims))
	}
}

// DecodeRequest decodes only what package proto decodes, and as it does.
func FuzzDecodeRequest(f *testing.F) {
	const claims, releases, number, name, ttl, wait = requestClaims<<3 | 2, requestReleases<<3 | 2, namedNumber << 3, namedName<<3 | 2, claimTTL << 3, claimWait << 3
	holder := &leasekeeperv1.Holder{Id: "me"}
	for _, req := range []*leasekeeperv1.HoldRequest{
		{Releases: []*leasekeeperv1.HoldRelease{{Number: 1, Name: "a/b", Lease: 7}, {Number: 2, Lease: -1}}},
		{Claims: []*leasekeeperv1.HoldClaim{{Number: 1 << 63, Name: "é", Lease: 7, TtlMs: 60_000, Wait: true}, {Name: strings.Repeat("x", maxSharedText)}}},
		{Holder: holder, Forget: []uint64{1, 300}, Claims: []*leasekeeperv1.HoldClaim{{Number: 3, Name: "n", Holder: holder}}},
	} {
		text, _ := AppendRequest(nil, req)
		f.Add(text)
		f.Add(text[:len(text)-1])
	}
	f.Add([]byte{claims, 3, name, 1, 0xff})                                                       // a name that is not UTF-8
	f.Add([]byte{claims, 5, name, 1, 'a', wait, 2})                                               // a boolean of 2
	f.Add([]byte{claims, 6, name, 1, 'a', name, 1, 'b'})                                          // two names
	f.Add([]byte{releases, 2, name, 4, 'a', 'b', 'c', 'd'})                                       // a name longer than its release
	f.Add([]byte{releases, 4, ttl, 1, number, 1})                                                 // a field of claims in a release
	f.Add([]byte{releases, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})           // a size of 2^63
	f.Add([]byte{claims, 11, number, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}) // a number above 64 bits
	f.Fuzz(func(t *testing.T, text []byte) {
		got, want := new(leasekeeperv1.HoldRequest), new(leasekeeperv1.HoldRequest)
		if !DecodeRequest(text, got) {
			return
		}
		if err := proto.Unmarshal(text, want); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v, want %v, %v", got, want, err)
		}
	})
}

// DecodeResponse decodes only what package proto decodes, and as it does.
func FuzzDecodeResponse(f *testing.F) {
	for _, a := range []*leasekeeperv1.HoldAnswer{{Number: 1, State: 3, TtlMs: 60_000, Token: 7}, {Number: 2, State: 4, Ended: true}, {Code: 1}} {
		text, err := proto.Marshal(&leasekeeperv1.HoldResponse{Answers: []*leasekeeperv1.HoldAnswer{a, a}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)-1])
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, want := new(leasekeeperv1.HoldResponse), new(leasekeeperv1.HoldResponse)
		if !DecodeResponse(text, got) {
			return
		}
		if err := proto.Unmarshal(text, want); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v, want %v, %v", got, want, err)
		}
	})
}

// Every message that package proto decodes is encoded so that it decodes to the same.
func FuzzAppendRequest(f *testing.F) {
	for _, req := range []*leasekeeperv1.HoldRequest{
		{Claims: []*leasekeeperv1.HoldClaim{{Number: 1, Name: "a", Lease: -1, TtlMs: 60_000, Wait: true}}, Forget: []uint64{0, 1 << 63}},
		{Holder: &leasekeeperv1.Holder{Id: "h"}, Releases: []*leasekeeperv1.HoldRelease{{}, {Number: 2, Name: "b", Lease: 7}}},
	} {
		text, _ := AppendRequest(nil, req)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := new(leasekeeperv1.HoldRequest)
		if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, want) != nil {
			return
		}
		encoded, ok := AppendRequest(nil, want)
		got := new(leasekeeperv1.HoldRequest)
		if err := proto.Unmarshal(encoded, got); !ok || err != nil || !proto.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	})
}
