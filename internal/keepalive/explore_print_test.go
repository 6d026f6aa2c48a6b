package keepalive

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

func (w *world) clone() *world {
	c, h := *w, *w.h
	h.slots, h.free, h.messages = slices.Clone(h.slots), slices.Clone(h.free), slices.Clone(h.messages)
	h.queue.entries = slices.Clone(h.queue.entries)
	h.effects, h.due, h.batches = nil, nil, nil
	c.h = &h
	return &c
}

// fingerprint returns a hash of everything that the future of a world depends on. Times are relative to now, all overdue
// times are equal, and data that can no longer change anything is left out.
func (x *explorer) fingerprint(w *world) [2]uint64 {
	h := w.h
	f := &print{b: x.buffer[:0], now: w.now, progress: h.progressAfter(h.last.Until(w.now))}
	if raw, boot := min(w.now.Raw-h.last.Raw, int64(past)), min(w.now.Boot-h.last.Boot, int64(past)); raw != boot {
		f.num(raw) // otherwise the world equals one whose last step was now
		f.num(boot)
	}
	for i := range h.slots {
		s := &h.slots[i]
		if s.claims() {
			f.instant(s.instant, past)
		} else {
			f.instant(s.instant, 0)
		}
		f.num(int64(s.length))
		f.due(s.next)
		f.num(int64(min(h.number-s.acknowledged, 8))) // the network has fewer messages
		f.num(int64(h.number-s.sent+1) * int64(min(1, s.sent)))
		f.num(int64(h.number-s.hedge+1) * int64(min(1, s.hedge)))
		f.b = append(f.b, byte(s.state), byte(s.use), byte(s.index))
		f.flag(s.tries > 0)
		f.flag(s.doubted)
	}
	for i := range h.messages {
		m := &h.messages[i]
		if !m.waits && i < len(h.messages)-int(x.scope.window) {
			continue // no answer to it can come
		}
		f.instant(m.sent, past)
		f.num(int64(m.left))
		if f.flag(m.waits); m.waits {
			f.due(m.expire)
			f.due(m.overdue)
			f.num(int64(max(m.began-f.progress, -past)))
			f.flag(m.hedge)
		}
	}
	for _, e := range h.queue.entries {
		f.due(e.key)
		f.num(int64(e.slot))
	}
	f.due(h.messagesDue)
	if f.due(h.scheduledWake); h.scheduledWake != never {
		f.instant(h.wakeInstant, 0)
	}
	if f.flag(w.sleeps); w.sleeps {
		f.instant(w.wake, 0)
	}
	for i := range w.sides[:x.scope.leases] {
		f.side(&w.sides[i])
	}
	if x.variant.bend != nil {
		f.instant(w.newest, past)
	}
	for i := range w.sends {
		if x.scope.finds && i <= int(x.scope.window) {
			f.instant(w.sends[i], past)
		}
	}
	f.flag(w.wrong != "")
	f.num(int64(w.odd<<16 | w.broken<<8 | w.short))
	f.flag(w.asleep)
	x.buffer = f.b
	return [2]uint64{maphash.Bytes(x.seeds[0], f.b), maphash.Bytes(x.seeds[1], f.b)}
}

// past is the age beyond which an instant makes no difference.
const past = 40 * unit

type print struct {
	b        []byte
	now      clock.Instant
	progress time.Duration
}

func (f *print) num(v int64) { f.b = binary.AppendVarint(f.b, v) }

func (f *print) flag(v bool) {
	if v {
		f.b = append(f.b, 1)
	} else {
		f.b = append(f.b, 0)
	}
}

func (f *print) instant(i clock.Instant, oldest time.Duration) {
	f.num(max(i.Raw-f.now.Raw, -int64(oldest)))
	f.num(max(i.Boot-f.now.Boot, -int64(oldest)))
}

func (f *print) due(d time.Duration) {
	if d == never {
		f.num(-1)
	} else {
		f.num(int64(max(d-f.progress, 0)))
	}
}

func (f *print) side(s *side) {
	f.b = append(f.b, byte(s.phase), s.answers, byte(s.requests), byte(s.acks), byte(s.shorts), byte(s.found), s.reports)
	f.num(int64(s.left))
	f.flag(s.began)
	f.flag(s.over)
	f.flag(s.released)
}
