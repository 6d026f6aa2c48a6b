package backend

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Tick identifies one run of recurring work: the time for which it is scheduled, or its number. No clock is compared
// with it. Make one with [TickAt] or [TickNumber]; the zero Tick stands for none.
type Tick struct {
	kind tickKind
	n    int64 // of a time: nanoseconds since 1970 in UTC
}

type tickKind uint8

const (
	noTick tickKind = iota
	timeTick
	numberTick
)

// TickAt returns the tick of a time. Its time zone makes no difference. Times before 1678 or after 2261 are not valid,
// and give the zero Tick.
func TickAt(t time.Time) Tick {
	if year := t.UTC().Year(); year < 1678 || year > 2261 {
		return Tick{}
	}
	return Tick{timeTick, t.UnixNano()}
}

// TickNumber returns the tick of a counter.
func TickNumber(n int64) Tick { return Tick{numberTick, n} }

// ParseTick reads what [Tick.String] returns: a decimal number, or a time in RFC 3339.
func ParseTick(text string) (Tick, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return TickNumber(n), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return Tick{}, fmt.Errorf("%w: the tick %q is neither a number nor a time such as 2026-03-01T12:00:00Z", ErrInvalid, Printable(text))
	}
	tick := TickAt(t)
	return tick, CheckTick(tick)
}

// CheckTick returns an error if t is the zero Tick.
func CheckTick(t Tick) error {
	if t.IsZero() {
		return fmt.Errorf("%w: a tick is missing, or its year is not from 1678 to 2261", ErrInvalid)
	}
	return nil
}

// IsZero reports whether t stands for no tick.
func (t Tick) IsZero() bool { return t.kind == noTick }

// SameKind reports whether both ticks are times or both are numbers. Others cannot be compared.
func (t Tick) SameKind(o Tick) bool { return t.kind == o.kind }

// Compare returns -1, 0 or 1 if t is before o, equal, or after o. Both must be of the same kind.
func (t Tick) Compare(o Tick) int {
	if t.kind != o.kind {
		panic(fmt.Sprintf("backend: the ticks %v and %v are of different kinds", t, o))
	}
	switch {
	case t.n < o.n:
		return -1
	case t.n > o.n:
		return 1
	}
	return 0
}

// String returns a number in decimal, a time in RFC 3339 in UTC, and "none" for the zero Tick.
func (t Tick) String() string {
	switch t.kind {
	case timeTick:
		return time.Unix(0, t.n).UTC().Format(time.RFC3339Nano)
	case numberTick:
		return strconv.FormatInt(t.n, 10)
	}
	return "none"
}

// Mark is what a store remembers of the recurring work of a name: its highest completed tick. The zero Mark says that
// no tick was completed.
type Mark struct {
	Tick Tick
	// Token is that of the tenure in which the tick was recorded; 0 if a person set the mark.
	Token Token
}

// IsZero reports whether no tick was completed.
func (m Mark) IsZero() bool { return m.Tick.IsZero() }

// Text returns the mark in the form in which stores keep it: token and tick, or nothing for the zero Mark.
func (m Mark) Text() string {
	if m.IsZero() {
		return ""
	}
	return strconv.FormatUint(uint64(m.Token), 10) + " " + m.Tick.String()
}

// ParseMark reads what [Mark.Text] returns. The error is [ErrCorrupt].
func ParseMark(text string) (Mark, error) {
	if text == "" {
		return Mark{}, nil
	}
	token, tick, _ := strings.Cut(text, " ")
	n, err := strconv.ParseUint(token, 10, 64)
	if err == nil {
		var t Tick
		if t, err = ParseTick(tick); err == nil {
			return Mark{t, Token(n)}, nil
		}
	}
	return Mark{}, fmt.Errorf("%w: the mark %q is not a token and a tick", ErrCorrupt, Printable(text))
}

// Includes reports whether t needs no run, because it, or a later tick, was completed. [ErrInvalid] says that the mark is of
// the other kind.
func (m Mark) Includes(t Tick) (bool, error) {
	raised, err := m.Raised(t, m.Token)
	return err == nil && raised == m, err
}

// Raised returns the mark after the holder with the given token has completed t. The mark never falls: an older tick
// changes nothing. [ErrInvalid] says that the mark is of the other kind.
func (m Mark) Raised(t Tick, token Token) (Mark, error) {
	switch {
	case m.IsZero():
		return Mark{t, token}, nil
	case !m.Tick.SameKind(t):
		return m, fmt.Errorf("%w: the tick %v cannot follow %v: the ticks of a name are all times or all numbers", ErrInvalid, t, m.Tick)
	case t.Compare(m.Tick) <= 0:
		return m, nil
	}
	return Mark{t, token}, nil
}

// MarkPrefix begins the keys of marks in an etcd, and in our server. The name follows, with its namespace. No name
// begins with a slash, so no queue of a name has such a key in it.
const MarkPrefix = "/leasekeeper/marks/"

// Marker keeps a mark beside each name. A mark stays when its name is released, expires, or is forgotten by the store.
type Marker interface {
	// Mark returns the mark of a name with authority.
	Mark(ctx context.Context, name string) (Mark, error)
	// RaiseMark raises the mark of the lease's name as [Mark.Raised] says, in one step with the check that the
	// lease holds the name. [ErrLost] says with authority that the lease does not hold the name; nothing is changed
	// then. After [ErrUnknownOutcome] the caller may repeat it.
	RaiseMark(ctx context.Context, l Lease, t Tick) error
	// ReplaceMark replaces the mark of a name if it is old, and reports whether it did. The zero Mark removes it.
	ReplaceMark(ctx context.Context, name string, old, new Mark) (bool, error)
}

// NamedMark is a mark in a list.
type NamedMark struct {
	Name string
	Mark Mark
	Err  error // why the mark cannot be read, such as [ErrCorrupt]; then Mark is undefined
}

// MarkLister is a backend that keeps its marks apart from the records of names, so that List does not return names that have
// nothing but a mark.
type MarkLister interface {
	// ListMarks returns the marks of at most limit names: those that begin with prefix and follow after, in the order of the
	// names. A list that is shorter than limit is the last one.
	ListMarks(ctx context.Context, prefix, after string, limit int) ([]NamedMark, error)
}

// Finish says what a release leaves behind.
type Finish struct {
	// Tick is recorded as completed, as with [Marker.RaiseMark]. The zero Tick records nothing.
	Tick Tick
	// Hold is for how long from the call, on this process's clock, the name stays held by this holder, though the lease is
	// renewed no more. 0 frees the name at once.
	Hold time.Duration
}

// Finisher is a backend whose releases can leave something behind.
type Finisher interface {
	// CheckHold returns an error if leases with this TTL cannot be held for d after the claim by [Finish].
	CheckHold(ttl, d time.Duration) error
	// Finish releases a lease that holds its name, in one step with what f says. [ErrLost] says with authority that
	// the lease did not hold the name any more and that nothing was recorded. After [ErrUnknownOutcome] the caller
	// should repeat it: if the first call took effect, the second returns nil and changes nothing.
	//
	// A lease that is held on ends after f.Hold by itself, and the history says that it expired. A lease that was revoked is
	// not held on. A Release of a lease after its Finish changes nothing.
	Finish(ctx context.Context, l Lease, f Finish) error
}

// HoldConfirmer is a [Finisher] whose store has a limit that CheckHold does not know.
type HoldConfirmer interface {
	// ConfirmHold asks the store whether a [Finish] could hold this name for d after the claim of a lease with this TTL. It
	// changes nothing. [ErrInvalid] and [ErrUnsupported] say that the store would refuse. Any other error says nothing.
	ConfirmHold(ctx context.Context, name string, ttl, d time.Duration) error
}
