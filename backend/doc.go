// Package backend is the interface between the root package and a store of leases.
//
// A backend is one store of leases: our server, etcd, a database, a process's own memory. The root package asks
// it for few things and does all the rest itself: it counts deadlines, decides when to renew, ends contexts,
// and runs functions. A [Backend] only carries requests to its store and returns the store's answers. It never
// claims more than the store has said: what it does not know is [ErrUnknownOutcome].
//
// How it works: [Backend] has what every backend can do. Abilities of only some backends are small interfaces
// ([Watcher], [Historian], [Revoker], …). The root package finds them by type assertion, and returns
// [ErrUnsupported] if they are missing. A backend registers the schemes of its URLs with [Register] when its
// package is imported, as drivers of database/sql do.
//
// How time is counted: every length that a backend returns is one that the store promised. The root package
// counts it from its reading of the clocks before it called the backend, which is never later than the first
// send of the request. A backend whose store shares the clocks of this process, or that had to ask several
// times, returns an instant instead ([Grant.Until]).
//
// It never starts a goroutine, and never keeps a lease: a [Lease] is a reference to a claim in the store.
package backend
