// Package simulation runs whole clusters in one goroutine, in a world that a seed determines.
//
// Each member is a real replica on a real database in memory, and the world drives it. The world has a real time that no
// member and no client can see. Each of them has a pair of clocks of its own. The clocks run at the bounds of the drift,
// are slewed, and stand still while a machine is suspended. These things also happen:
//
//   - Messages between members are encoded, lost, delayed, repeated and reordered. Links are cut in one direction or both.
//   - Writes take time to reach the disk, and a crash keeps only what was synced.
//   - Processes pause between any two actions, end right after an acknowledgement, and restart with another configuration.
//   - Clients put, read, compact, grant, renew and claim. They transfer names to the next in the queue, pin them, write keys
//     that names guard, and compare and swap keys. They use the leader and followers, and rely on every answer.
//
// The world sees everything. After each event it compares what members and clients may rely on with what is true. It
// checks:
//
//   - promises and authority (promise.go),
//   - leases (lease.go), and how long they last (overstay.go),
//   - answers (call.go and claim.go), transfers and pins (tenure.go), finishes and marks (finish.go),
//   - the replicated state (facts.go), and compares and outcomes of txns (history.go).
//
// When the faults have stopped, the cluster must recover within a bound (steady.go). Comments and failures
// cite the invariants I1 to I10 of docs/design/master-leases.md, the rules of docs/design/time-and-identity.md and the
// promises of docs/guarantees.md.
//
// Mutants show that the world notices mistakes. testdata/mutants.txt lists them, and says why other mistakes in master
// leases are not among them.
//
// Elections are eager in most runs: a member campaigns as soon as no promise forbids it, and forgets its leader then.
// With ordinary timeouts, a broken master lease is hidden by the time that members wait anyway.
//
// A seed draws which faults there are and how many (swarm.go), and then when they happen (fault.go). The same seed gives
// the same run, to the last message. A failing run reports the broken invariant, the facts that contradict each other, the
// last events, and the command that repeats it.
//
// The package starts no goroutine, reads no clock, and touches no disk.
package simulation
