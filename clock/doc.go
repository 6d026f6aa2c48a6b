// Package clock is the only place where Leasekeeper does arithmetic on time.
//
// It promises that a program which asks the right one of its few questions cannot be early when it must
// wait, nor late when it must stop: every instant is a pair of readings of two unlike clocks of one
// machine, and the two predicates take the careful side of both. [Instant.Before] says whether a deadline
// may still be relied on (both readings are before it); [Instant.After] says whether an end has surely
// come (both readings are strictly past it). Between the two there is a grey zone in which the one who
// relies has stopped and the one who waits still waits.
//
// How it works: no two machines' clocks are ever compared. Only lengths of time cross a network, and
// a caller that counts a length promised on another machine first passes it through one of the four
// functions [Drift.RelyRemote], [Drift.WaitRemote], [Drift.GrantPromise], [Drift.CountPromise], which pay for
// the difference of the two clocks' rates. The arithmetic is on integers and rounds against the caller.
// The model of drift is that of C. Gray and D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism
// for Distributed File Cache Consistency" (SOSP 1989), section 5.
//
// It never starts a goroutine or a timer. Only the files system_*.go read a clock; everything else in the
// package, and every package that decides about leases, takes the time as an argument. A program that waits holds
// its clocks as a value: [System] is the machine's, [Manual] is the hand-driven twin for tests and simulations.
package clock
