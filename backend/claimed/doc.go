// Package claimed makes a [backend.Backend] of any [claim.Store], so that keepers work on it.
//
// Package claim decides who holds a name, and for how long. This package promises what only a keeper needs:
//
//   - Callers in one process that wait for the same name get it in the order of their claims. Only the first of
//     them asks the store.
//   - A call ends when its context or the backend ends, and Close waits for the goroutines of the backend.
//   - A claim whose outcome is unknown stays unknown until the store has answered. A repeated claim with the
//     same id never makes a second tenure.
//   - A watch reports every change that is still visible when it looks. It reports what it may have missed as
//     [backend.Resync].
//
// It does not promise an order among processes, unless the store is a [claim.Queuer].
//
// How it works: [Backend] keeps one tenure for each claim of this process, with the lease that a [claim.Client]
// made for it. Waiting tenures of one name form a local queue. Its head asks the store when something says that
// the name may be free: the store's queue, a hint of a [claim.Notifier], the end of the holder's lease, or the
// poll interval. Package internal/queue decides what a process in the store's queue does.
//
// It never decides from a record: that is left to the client. Waiting alone never writes to the record of a
// name. It imports no database.
package claimed
