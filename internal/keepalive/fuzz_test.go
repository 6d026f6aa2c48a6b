package keepalive

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// fuzzed reads choices from bytes. Past the end all bytes are zero.
type fuzzed struct{ data []byte }

func (f *fuzzed) byte() byte {
	if len(f.data) == 0 {
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return b
}

func (f *fuzzed) number() int64 {
	var b [8]byte
	f.data = f.data[copy(b[:], f.data):]
	return int64(binary.LittleEndian.Uint64(b[:]))
}

func (f *fuzzed) duration() time.Duration {
	switch f.byte() % 8 {
	case 0:
		return time.Duration(f.number())
	case 1:
		return math.MaxInt64
	case 2:
		return -1
	}
	return time.Duration(f.byte()) * 100 * time.Millisecond
}

func (f *fuzzed) instant(now clock.Instant) clock.Instant {
	switch f.byte() % 8 {
	case 0:
		return clock.Instant{Raw: f.number(), Boot: f.number()}
	case 1:
		return now.Add(f.duration())
	}
	return clock.Instant{}
}

// FuzzStep feeds events that may be late, repeated or meaningless. No step panics, no lease is valid after its end, and
// none is lost twice.
func FuzzStep(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x40\x01\x00\x40\x0b\x20\x03\x00\x40\x0b\x10\x05\x00\x07\x00"))
	f.Add([]byte{0, 100, 1, 0, 3, 100, 10, 3, 50, 5, 0, 0, 3, 100, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &fuzzed{data}
		h, err := New(Config{Drift: clock.Drift(in.byte()) * 1000, MaxIDs: int(in.byte() % 4), Seed: uint64(in.byte())})
		if err != nil {
			t.Fatal(err)
		}
		now := clock.Instant{Raw: in.number(), Boot: in.number()}
		var leases []Lease
		over := make(map[Lease]bool)
		for steps := 0; len(in.data) > 0 && steps < 500; steps++ {
			kind := in.byte()
			if kind%16 == 0 || len(leases) == 0 {
				l, err := h.Claim(now, in.duration())
				if err == nil {
					leases = append(leases, l)
				}
				continue
			}
			l := leases[int(in.byte())%len(leases)]
			for _, e := range h.Step(now, fuzzedEvent(h, in, &now, kind, l, leases)) {
				switch e := e.(type) {
				case Lost:
					if over[e.Lease] {
						t.Fatalf("%v is lost twice", e.Lease)
					}
					over[e.Lease] = true
				case Held:
					if over[e.Lease] || !h.Valid(h.last, e.Lease) {
						t.Fatalf("%v", e)
					}
				case Renew:
					if len(e.Leases) == 0 {
						t.Fatalf("%v", e)
					}
				}
			}
			for _, l := range leases {
				if valid := h.Valid(h.last, l); valid && over[l] || valid != (h.Remaining(h.last, l) > 0) {
					t.Fatalf("%v: valid is %v, over is %v", l, valid, over[l])
				}
			}
		}
	})
}

func fuzzedEvent(h *Renewer, in *fuzzed, now *clock.Instant, kind byte, l Lease, leases []Lease) Event {
	number := uint64(0)
	if h.number > 0 {
		number = 1 + uint64(in.byte())%h.number
	}
	switch kind % 17 {
	case 1:
		return Queued{l, in.duration(), in.instant(*now)}
	case 2, 3:
		return Granted{l, in.duration(), in.instant(*now)}
	case 4:
		return Refused{l}
	case 5:
		return Unknown{l}
	case 6, 7, 8:
		if number == 0 {
			return Wake{}
		}
		e := Renewed{Number: number}
		for range in.byte() % 4 {
			e.Answers = append(e.Answers, Answer{
				Lease: leases[int(in.byte())%len(leases)], Outcome: Outcome(in.byte() % 3), TTL: in.duration(), Until: in.instant(*now),
			})
		}
		return e
	case 9:
		if number == 0 {
			return Wake{}
		}
		return Returned{number}
	case 10:
		return Ended{l}
	case 11:
		return Releasing{l}
	case 12:
		return Released{l}
	case 13:
		return ReleaseFailed{l}
	case 14:
		return Retire{l}
	case 15:
		*now = clock.Instant{Raw: now.Add(in.duration()).Raw, Boot: now.Add(in.duration()).Boot}
	default:
		*now = now.Add(in.duration())
	}
	return Wake{}
}
