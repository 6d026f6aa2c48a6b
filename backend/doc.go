// Package backend is what a backend implements, so that leases on it can be used through the root package.
//
// A backend is one store that leases live in: our server, etcd, a database, a process's own memory. The root
// package asks it for few things and does all the rest itself: it counts deadlines, decides when to renew,
// ends contexts, and runs functions. A [Backend] only carries questions to its store and brings back what
// the store said, and never says more than that: what it does not know is [ErrUnknownOutcome].
//
// How it works: [Backend] is what every backend can do. What only some can is in small interfaces beside it
// ([Watcher], [Historian], [Revoker], …); the root package looks for them by type assertion, and answers
// [ErrUnsupported] where they are missing. A backend registers the schemes of its URLs with [Register] when
// its package is imported, like the drivers of database/sql.
//
// Who counts time: every length that a backend returns is one that the store promised. The root package
// counts it from the reading of the clocks that it took before it called the backend, which is never later
// than the first send of the request. A backend whose store shares the clocks of this process, or that had
// to ask several times, says until when instead ([Grant.Until]).
//
// It never starts a goroutine, and never keeps a lease: a [Lease] is a reference to what the store keeps.
package backend
