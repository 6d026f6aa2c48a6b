// Package memory keeps leases in the memory of one process, for tests of programs that hold leases.
//
// It promises what every backend promises, to all keepers on one [Store]: one holder of a name at a time,
// the longest in line next, tokens that only grow. And it does on demand what a store on a network does on
// a bad day: [Store.Inject] and [Backend.Inject] lose requests and answers, hold them back, stall and refuse
// them; [Store.Restart], [Store.Forget] and [Store.Delete] do what operators do.
//
// How it works: a [Store] is what would be a server, a [Backend] is one client's connection to it. Tests
// usually make a store with [New] and give each keeper a backend of its own; where only a URL fits,
// "memory:" is a new store, and "memory:NAME" is the store that has this name in the process. A store goes
// by the machine's clocks, or by a [Clock] that the test moves; keepers on it then count by that clock too.
// All backends can do everything that package driver knows of.
//
// It never starts a goroutine and never writes anything down: what it holds is gone with the process.
package memory
