package masterlease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// headers returns samples of valid headers.
func headers() []Header {
	request := Request{Term: 5, Epoch: 1, Stamp: clock.Instant{Raw: 3e9, Boot: 4e9}, Duration: DefaultDuration, Drift: clock.DefaultDrift}
	grant := Grant{Term: 5, Epoch: 2, Echo: clock.Instant{Raw: -3e9, Boot: 4e9}, Duration: DefaultDuration, Drift: clock.DefaultDrift,
		Remaining: time.Second, Reading: clock.Instant{Raw: 1, Boot: 2}, Domain: 7}
	release := Release{Leader: 1, Term: 5, Epoch: 1}
	widest := Header{
		Request: &Request{Term: math.MaxUint64, Epoch: math.MaxUint64, Stamp: clock.Instant{Raw: math.MinInt64, Boot: math.MinInt64}, Duration: maxDuration, Drift: clock.MaxDrift},
		Grant: &Grant{Term: math.MaxUint64, Epoch: math.MaxUint64, Echo: clock.Instant{Raw: math.MaxInt64, Boot: math.MinInt64}, Duration: maxDuration, Drift: clock.MaxDrift,
			Remaining: math.MaxInt64, Reading: clock.Instant{Raw: math.MinInt64, Boot: math.MaxInt64}, Domain: math.MaxUint64},
		Release: &Release{Leader: math.MaxUint64, Term: math.MaxUint64, Epoch: math.MaxUint64},
	}
	return []Header{{}, {Request: &request}, {Grant: &grant}, {Release: &release}, {Request: &request, Grant: &grant, Release: &release}, widest}
}

// Parsing an encoded header returns the same header.
func TestHeadersSurviveEncoding(t *testing.T) {
	for i, h := range headers() {
		b := h.AppendTo([]byte("before"))
		got, err := ParseHeader(b[len("before"):])
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("header %d was parsed as %+v, %v", i, got, err)
		}
		if len(b)-len("before") > MaxHeaderSize {
			t.Errorf("header %d has %d bytes, more than %d", i, len(b)-len("before"), MaxHeaderSize)
		}
	}
}

// A request travels with every message, so it must be small. The stamp of a clock that ran for a year takes
// eight bytes for each reading.
func TestHeadersAreSmall(t *testing.T) {
	year := clock.Instant{}.Add(365 * 24 * time.Hour)
	request := Request{Term: 1000, Epoch: 1, Stamp: year, Duration: DefaultDuration, Drift: clock.DefaultDrift}
	if n := len(Header{Request: &request}.AppendTo(nil)); n > 32 {
		t.Errorf("a request has %d bytes", n)
	}
}

// ParseHeader refuses everything that AppendTo cannot have written.
func TestMalformedHeadersAreRefused(t *testing.T) {
	good := headers()[4].AppendTo(nil)
	for n := range good {
		if _, err := ParseHeader(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	request := func(change func(r *Request)) []byte {
		r := *headers()[1].Request
		change(&r)
		return Header{Request: &r}.AppendTo(nil)
	}
	grant := func(change func(g *Grant)) []byte {
		g := *headers()[2].Grant
		change(&g)
		return Header{Grant: &g}.AppendTo(nil)
	}
	for _, c := range []struct {
		name string
		b    []byte
		says string
	}{
		{"one byte more", append(bytes.Clone(good), 0), "too long"},
		{"a later version", append([]byte{2}, good[1:]...), "version 2"},
		{"an unknown flag", append([]byte{1, 8}, good[2:]...), "flags"},
		{"a long form", append([]byte{1, hasRelease, 0x81, 0}, 1, 1), "too long"},
		{"a number of more than 64 bits", append([]byte{1, hasRelease}, bytes.Repeat([]byte{0xff}, 12)...), "too long"},
		{"too many bytes", make([]byte, MaxHeaderSize+1), "bytes"},
		{"no term", request(func(r *Request) { r.Term = 0 }), "term 0"},
		{"no epoch", grant(func(g *Grant) { g.Epoch = 0 }), "epoch 0"},
		{"no duration", request(func(r *Request) { r.Duration = 0 }), "duration"},
		{"a long duration", grant(func(g *Grant) { g.Duration = maxDuration + 1 }), "duration"},
		{"a negative duration", request(func(r *Request) { r.Duration = -1 }), "too long"},
		{"a negative rest", grant(func(g *Grant) { g.Remaining = -1 }), "too long"},
		{"a wide bound", request(func(r *Request) { r.Drift = clock.MaxDrift + 1 }), "too long"},
		{"a release without a leader", Header{Release: &Release{Term: 1, Epoch: 1}}.AppendTo(nil), "leader 0"},
	} {
		if _, err := ParseHeader(c.b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// FuzzParseHeader feeds bytes to ParseHeader. An accepted header has no other encoding. No header makes a
// promise longer than the recorded length or extends the authority beyond its grants.
func FuzzParseHeader(f *testing.F) {
	for _, h := range headers() {
		f.Add(h.AppendTo(nil))
	}
	f.Add(binary.AppendUvarint([]byte{version, hasRequest}, math.MaxUint64))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
			return
		}
		if again := h.AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x was parsed as %+v, which is encoded as %x", b, h, again)
		}
		p := newPair(t)
		p.beat()
		end := p.leader.Authority().End
		longest := later(end, p.now().Add(DefaultDuration))
		if h.Request != nil {
			p.hear(0, *h.Request)
			// The recorded length is two seconds, so no promise is longer.
			if opens, shut := p.followers[0].Opens(p.now()); shut && newer(opens, p.now().Add(2*time.Second)) {
				t.Fatalf("the promise lasts until %v", opens)
			}
		}
		if h.Grant != nil {
			p.leader.Receive(2, *h.Grant, p.now())
			if newer(p.leader.Authority().End, longest) {
				t.Fatalf("the authority lasts until %v", p.leader.Authority().End)
			}
		}
		if h.Release != nil && p.followers[1].Release(*h.Release) && *h.Release != (Release{Leader: 1, Term: 5, Epoch: h.Release.Epoch}) {
			t.Fatalf("%+v ended a promise", *h.Release)
		}
	})
}
