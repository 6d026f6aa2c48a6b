package queue

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// PassAfter is how long the head of a queue may take to claim a name that is free, unless it needs longer to see that.
	PassAfter = 250 * time.Millisecond
	// Busy is how long a process that had to wait for a name assumes that others wait for it too.
	Busy = time.Second
	// MostPatience bounds for how long others believe that a head still has to ask.
	MostPatience = time.Minute
)

// PatienceOf returns how long a process that asks at this interval may take at its turn. It finds out within one interval
// that it is the head, and in the next that the name is free.
func PatienceOf(every time.Duration) time.Duration { return min(2*(PassAfter+every), MostPatience) }

// ReadPatience returns the patience that a ticket states in milliseconds.
func ReadPatience(ms int64) time.Duration {
	return time.Duration(max(0, min(ms, MostPatience.Milliseconds()))) * time.Millisecond
}

const (
	// longestLook is how long one look may last. It bounds how late a process finds out that its ticket was deleted,
	// or that the holder has renewed.
	longestLook = 2 * time.Second
	// leastLook keeps a process from looking without a pause.
	leastLook = time.Millisecond
)

// View is what one look showed of the queue of one name.
type View struct {
	// Place is that of the process's own ticket; zero if the store has none.
	Place int64
	// Head is the lowest place in the queue, and Ahead counts the tickets before the process's own.
	Head  int64
	Ahead int
	// Free says that the name has no holder, or that the holder's lease has expired as this process counts.
	Free bool
	// Write identifies the last write of the record, and Token is the record's token.
	Write [16]byte
	Token uint64
	// For is how long the look itself saw the name free with the same head and record; zero if it did not
	// measure that.
	For time.Duration
	// Patience is how long the head may take to claim the name, if that is longer than [PassAfter].
	Patience time.Duration
}

// Act is what the process should do.
type Act uint8

const (
	// Wait says to look again.
	Wait Act = iota
	// Claim says that the process is the head and the name is free.
	Claim
	// Pass says to delete the ticket of the head, and those of processes that have ended, and to look again.
	Pass
	// Join says that the process no longer has a ticket, and should add one at the end of the queue.
	Join
)

// String returns the act in one word.
func (a Act) String() string {
	switch a {
	case Wait:
		return "wait"
	case Claim:
		return "claim"
	case Pass:
		return "pass"
	case Join:
		return "join"
	}
	return fmt.Sprintf("act %d", uint8(a))
}

// Step is an answer of a [Waiter].
type Step struct {
	Act Act
	// Head is the place of the ticket to delete, if Act is [Pass].
	Head int64
	// Look bounds how long the next look may last. A look ends by itself when it has seen a name free for [PassAfter],
	// with the same head all the while.
	Look time.Duration
	// Calm is how long the name has had the same holder, as far as this waiter has seen. Looks can be less
	// frequent in a queue that has not moved for long.
	Calm time.Duration
}

// Waiter is the state of one ticket. Its zero value is ready.
type Waiter struct {
	free  bool          // the name was free at the last view
	head  int64         // of the last view
	write [16]byte      // of the last view
	since clock.Instant // when the name was first seen free with that head and that write

	token uint64        // of the last view
	moved clock.Instant // when the token was first seen
	known bool          // there was a view
}

// See takes in what a look showed that ended at now.
func (w *Waiter) See(now clock.Instant, v View) Step {
	if v.Place == 0 {
		*w = Waiter{}
		return Step{Act: Join, Look: leastLook}
	}
	if !w.known || w.token != v.Token {
		w.moved = now
	}
	if !v.Free || !w.free || !w.known || w.head != v.Head || w.write != v.Write {
		w.since = now.Add(-max(0, min(v.For, longestLook)))
	}
	w.known, w.free, w.head, w.write, w.token = true, v.Free, v.Head, v.Write, v.Token
	step := Step{Look: longestLook, Calm: now.Elapsed(w.moved)}
	if !v.Free {
		return step
	}
	if v.Ahead == 0 {
		step.Act, step.Calm = Claim, 0
		return step
	}
	if now.Elapsed(w.since) >= max(PassAfter, v.Patience) {
		step.Act, step.Head = Pass, v.Head
	}
	return step
}
