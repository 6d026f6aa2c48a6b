// Package chaos has the bad days of a group of three happen to real processes.
//
// What it promises: the command that users run is started three times, clients work on the group all the time, and
// one after the other a leader is killed, stands still, is cut off both ways and one way, has a disk that fails or
// stalls, a follower is cut off, or restarted when the leader has nobody else, all members are killed at once, messages
// come late, a transfer of the leadership is aborted half way, and wall clocks jump by years. On none of these days is an
// acknowledged write lost, a lease ended before its holder's own deadline, a name held twice, a token given twice, or
// an old value returned as authoritative. A member without the others refuses what it cannot know within seconds,
// and each call of a client ends within ten.
//
// How it works. What is true is what the clients have seen, and they, the test, run on one machine with one monotonic
// clock. A writer raises a counter with compare-and-swap and knows what was acknowledged; a later reader must find
// that or more, and for a register with one writer that only grows this is all of linearizability. A holder counts
// its lease from before the renewal was sent; an observer must see the lease gone later. Keepers write
// down when they held a name and under which token; what they wrote down is compared at the end.
//
// The days are played twice. Behind proxies, which need no rights, each connection between members passes through
// the test; who has dialled is found out from the kernel, so that a direction between two members can be cut. In
// network namespaces, where the kernel allows them, with or without root, the test starts itself again in a world of
// its own: each member has a network on a bridge and monotonic clocks that began at another time, and what is cut
// vanishes without a word. If they are not allowed the test says so, and the same days have been played behind
// proxies.
//
// A wall clock is stepped by rewriting the function with which the kernel lets a process read it, in that process
// alone. Disks fail and stall by strace where it may be used; without it a limit of the size of files makes writes
// fail, and that a disk stalls is left to the simulation.
//
// What it does not play. TCP neither doubles nor reorders what one connection carries, so that messages are doubled
// and reordered is left to the simulation (internal/test/simulation), and so are clocks of different rates, and power
// cuts that take what was not synced.
//
// The package has nothing but tests, and those are for Linux: elsewhere they are not built.
package chaos
