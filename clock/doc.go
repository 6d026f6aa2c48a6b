// Package clock does all of Leasekeeper's arithmetic on time.
//
// Codes such as T1 are rules of docs/design/time-and-identity.md.
//
// An instant is a pair of readings of two unlike clocks of one machine. Two predicates take the careful side
// of both readings. [Instant.Before] reports whether a program may still rely on a deadline: both readings
// are before it. [Instant.After] reports whether an end has certainly come: both readings are strictly past
// it. In between, the relying side has stopped and the waiting side still waits. So a program that uses the
// right predicate never waits too short a time and never relies too long.
//
// Clocks of two machines are never compared. Only lengths of time cross a network. A program that counts a
// length promised on another machine first converts it with one of four functions: [Drift.RelyRemote],
// [Drift.WaitRemote], [Drift.GrantPromise] or [Drift.CountPromise]. They allow for the difference of the two
// clocks' rates. The arithmetic uses integers and rounds against the caller. The model of drift is that of C.
// Gray and D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
// Consistency" (SOSP 1989), section 5.
//
// The package never starts a goroutine or a timer. Only the files system_*.go read a clock. Everything else
// in the package, and every package that decides about leases, takes the time as an argument. A program that
// waits holds its clocks as a value: [System] for the machine's clocks, [Manual] for clocks that a test or a
// simulation moves.
package clock
