// Package survey owns what the web console knows of the names in a store: all names at one time, what changed between
// two times, and figures of the last hour.
//
// # What it promises
//
//   - A [Survey] is immutable and in the order of names, so any number of goroutines may read it.
//   - [Compare] finds each name whose tenure ended or began between two surveys. A tenure that began and ended between
//     them is not found.
//   - A figure that nobody observed is missing ([Missing]), never 0.
//
// # How it works
//
// The caller lists the store page by page into a [Collection], which becomes a Survey. Each name carries the instant at
// which its lease ends unless it is renewed, counted from the store's answer. A [Ring] keeps one figure in slots of
// equal length, and forgets the oldest slot when a new one begins.
//
// # What it never does
//
// It reads no clock and no store: the time and the names are arguments. No decision about a lease may depend on it.
package survey
