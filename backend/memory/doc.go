// Package memory keeps leases in the memory of one process, for tests of programs that hold leases.
//
// To all keepers on one [Store] it gives the promises of every backend: one holder of a name at a time, the
// first in the queue next, tokens that only grow. On demand it has the faults of a store on a network.
// [Store.Inject] and [Backend.Inject] lose, delay, stall and refuse requests and answers. [Store.Restart],
// [Store.Forget] and [Store.Delete] do what operators do.
//
// How it works: a [Store] stands for a server, and a [Backend] is one client's connection to it. Tests usually
// make a store with [New] and give each keeper a backend of its own. If only a URL fits, "memory:" is a new
// store, and "memory:NAME" is the store with this name in the process. A store uses the machine's clocks, or a
// [Clock] that the test moves; keepers on it then use that clock too. All backends have every ability that
// package backend knows.
//
// It never starts a goroutine and never stores anything: its leases end with the process.
package memory
