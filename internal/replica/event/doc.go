// Package event holds the events that happen to a member, the effects that its driver performs, and the authority on
// which an answer rests. [github.com/leasekeeper/leasekeeper/internal/replica] names them all again.
//
// The sets of events, effects, queries and results are closed. A value of this package belongs to its receiver, unless
// its type says otherwise. The package decides nothing, keeps nothing, and reads no clock: its caller passes one in.
package event
