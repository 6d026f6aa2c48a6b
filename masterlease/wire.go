package masterlease

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// An encoded header is a version, then flags that say which parts follow, then the parts. Numbers are varints in their
// shortest form, so each header has exactly one encoding.
const (
	version = 1

	hasRequest = 1 << 0
	hasGrant   = 1 << 1
	hasRelease = 1 << 2

	// MaxHeaderSize is the size of the largest header, in bytes.
	MaxHeaderSize = 2 + 6*binary.MaxVarintLen64 + 11*binary.MaxVarintLen64 + 3*binary.MaxVarintLen64
)

func (r Request) validate() error {
	return validatePromise(r.Term, r.Epoch, r.Duration, r.Drift)
}

func (g Grant) validate() error {
	if g.Remaining < 0 {
		return fmt.Errorf("%w: %v remain", ErrMalformed, g.Remaining)
	}
	return validatePromise(g.Term, g.Epoch, g.Duration, g.Drift)
}

func (r Release) validate() error {
	if r.Leader == 0 || r.Term == 0 || r.Epoch == 0 {
		return fmt.Errorf("%w: release of leader %d, term %d, epoch %d", ErrMalformed, r.Leader, r.Term, r.Epoch)
	}
	return nil
}

// validatePromise checks the fields that a request and a grant have in common.
func validatePromise(term, epoch uint64, duration time.Duration, drift clock.Drift) error {
	switch {
	case term == 0 || epoch == 0:
		return fmt.Errorf("%w: term %d, epoch %d", ErrMalformed, term, epoch)
	case duration <= 0 || duration > maxDuration:
		return fmt.Errorf("%w: duration %v", ErrMalformed, duration)
	case drift.Validate() != nil:
		return fmt.Errorf("%w: drift of %d ppm", ErrMalformed, uint32(drift))
	}
	return nil
}

// Empty reports whether there is nothing to send.
func (h Header) Empty() bool { return h.Request == nil && h.Grant == nil && h.Release == nil }

// AppendTo appends the encoding of h to b.
func (h Header) AppendTo(b []byte) []byte {
	b = append(b, version, 0)
	flags := len(b) - 1
	if r := h.Request; r != nil {
		b[flags] |= hasRequest
		b = appendNumbers(b, r.Term, r.Epoch)
		b = appendInstant(b, r.Stamp)
		b = appendNumbers(b, uint64(r.Duration), uint64(r.Drift))
	}
	if g := h.Grant; g != nil {
		b[flags] |= hasGrant
		b = appendNumbers(b, g.Term, g.Epoch)
		b = appendInstant(b, g.Echo)
		b = appendNumbers(b, uint64(g.Duration), uint64(g.Drift), uint64(g.Remaining))
		b = appendInstant(b, g.Reading)
		b = appendNumbers(b, g.Domain)
	}
	if r := h.Release; r != nil {
		b[flags] |= hasRelease
		b = appendNumbers(b, r.Leader, r.Term, r.Epoch)
	}
	return b
}

// appendNumbers appends unsigned varints to b.
func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// appendInstant appends both readings as signed varints to b.
func appendInstant(b []byte, i clock.Instant) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, i.Raw), i.Boot)
}

// reader reads numbers from a header. After the first error it returns zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || size > 1 && r.rest[size-1] == 0 { // cut off, too long, or not the shortest form
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) signed() int64 {
	n := r.number()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *reader) instant() clock.Instant {
	raw := r.signed()
	return clock.Instant{Raw: raw, Boot: r.signed()}
}

func (r *reader) duration() time.Duration {
	n := r.number()
	if n > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return time.Duration(n)
}

func (r *reader) drift() clock.Drift {
	n := r.number()
	if n > uint64(clock.MaxDrift) {
		r.bad = true
		return 0
	}
	return clock.Drift(n)
}

// ParseHeader decodes a header, which must be all of b. It returns [ErrMalformed] also for an unknown
// version. A message without a header carries no promise and no lease, so ignoring a header is safe.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < 2 || len(b) > MaxHeaderSize {
		return Header{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	if b[0] != version {
		return Header{}, fmt.Errorf("%w: version %d, but this member knows only version %d: upgrade this member", ErrMalformed, b[0], version)
	}
	flags := b[1]
	if flags&^(hasRequest|hasGrant|hasRelease) != 0 {
		return Header{}, fmt.Errorf("%w: flags %#x", ErrMalformed, flags)
	}
	var h Header
	in := &reader{rest: b[2:]}
	if flags&hasRequest != 0 {
		h.Request = &Request{Term: in.number(), Epoch: in.number(), Stamp: in.instant(), Duration: in.duration(), Drift: in.drift()}
	}
	if flags&hasGrant != 0 {
		h.Grant = &Grant{Term: in.number(), Epoch: in.number(), Echo: in.instant(), Duration: in.duration(), Drift: in.drift(),
			Remaining: in.duration(), Reading: in.instant(), Domain: in.number()}
	}
	if flags&hasRelease != 0 {
		h.Release = &Release{Leader: in.number(), Term: in.number(), Epoch: in.number()}
	}
	if in.bad || len(in.rest) != 0 {
		return Header{}, fmt.Errorf("%w: cut off or too long", ErrMalformed)
	}
	if err := h.validate(); err != nil {
		return Header{}, err
	}
	return h, nil
}

func (h Header) validate() error {
	if h.Request != nil {
		if err := h.Request.validate(); err != nil {
			return err
		}
	}
	if h.Grant != nil {
		if err := h.Grant.validate(); err != nil {
			return err
		}
	}
	if h.Release != nil {
		return h.Release.validate()
	}
	return nil
}
