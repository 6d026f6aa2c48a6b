// Package simulation is whole groups of members in one goroutine, in a world that a seed determines.
//
// Each member is a real replica on a real database in memory; the world is its driver. It has real time, which
// nobody in it can see: every member and every client has a pair of clocks of its own, which run at the bounds of the
// drift, are slewed, and stand still while a machine is suspended. Messages between members are encoded, lost, late,
// doubled and out of order, and links are cut in one direction or both. Writes take their time to reach the disk, and
// a crash keeps what was synced. Processes pause between any two things that they do, end right after they have
// acknowledged something, and start with another configuration. Clients put, read, compact, grant, renew and claim,
// give names to the next in line, pin them, write what they guard, and compare and swap keys, through leaders and
// followers, and take what they are told at its word.
//
// After each event the world, which sees everything, compares what members and clients may rely on with what is true:
// promises and authority in promise.go, leases in lease.go, and how long they last in overstay.go, answers in call.go
// and claim.go, transfers and pins in tenure.go, state in facts.go, and what txns compare and what came of them in
// history.go. When the faults have stopped the group has to come back within a bound (steady.go).
//
// That the world notices mistakes is shown by making them: testdata/mutants.txt has them, and says of others that can be
// made in master leases why they are not among them.
//
// Elections are eager in most runs: a member campaigns as soon as no promise forbids it, and forgets its leader then.
// With ordinary timeouts a broken master lease is hidden by the time that members wait anyway.
//
// A seed draws which faults there are and how many (swarm.go), and then when (fault.go). The same seed gives the same
// run, to the last message. One that fails says which invariant broke, the facts that contradict each other, what
// happened last, and the command that repeats it.
//
// It starts no goroutine, reads no clock, and touches no disk.
package simulation
