// Package chaos injects faults into clusters of three real processes.
//
// What it promises: the test starts the command that users run three times, and clients use the cluster all the time.
// Then it plays one fault scenario after the other:
//
//   - a leader is killed, is paused, is cut off in both directions or in one, or has a disk that stalls or fails,
//   - a follower is cut off, or is restarted while it is the leader's only follower,
//   - all members are killed at once,
//   - messages are delayed, a transfer of leadership is aborted, and wall clocks jump by years.
//
// In no scenario is an acknowledged write lost, or a lease ended before its holder's own deadline. No name has two holders,
// no token is used twice, and no old value is returned as authoritative. A member without the others refuses what it cannot know within
// seconds. Each call of a client ends within ten seconds.
//
// How it works. The clients and the test run on one machine with one monotonic clock, so what they saw is the truth. A
// writer raises a counter by compare-and-swap and knows what was acknowledged. A later reader must find at least that. For
// a register with one writer that only grows, this is all of linearizability. A holder counts its lease from before it
// sent the renewal, and an observer must see the lease gone later. Keepers record when they held a name and under which
// token; the records are compared at the end.
//
// The scenarios are played twice. Behind proxies, which need no rights, each connection between members passes through the
// test. The kernel says which process has dialled, so that one direction between two members can be cut. In network
// namespaces, the test starts itself again: each member has a network on a bridge and monotonic clocks that began at
// another time, and cut links drop packets silently. Where the kernel allows no namespaces, the test says so.
//
// To step the wall clock of one process, the test rewrites the function by which this process reads the time. Disks fail
// and stall by strace. Without strace, a limit on the size of files makes writes fail, and stalls are left to the simulation.
//
// What it does not do. TCP neither repeats nor reorders the bytes of a connection. So repeated and reordered messages are
// left to the simulation (internal/test/simulation). So are clocks of different rates, and power failures that lose what
// was not synced.
//
// The package has nothing but tests. They are built on Linux only.
package chaos
