// Package claimtest tests what implements [claim.Store], and programs that lease names on one.
//
// It promises that a store which passes [Run] can stand under package claim: every sentence of the
// interface has a test, and real clients on it keep their own promises, also when requests and answers get
// lost. [Memory] is a store in the memory of one process, linearizable and complete; [Faulty] carries the
// calls to any store over a network on which they get late, lost, doubled and old; [Plain] hides what a store
// can do beyond the least.
//
// How it works: the test of a store makes a [Config] and calls Run, which opens as many clients as it needs,
// as if of as many processes, and a namespace for each of its tests. Processes that lease names are given
// clocks that the suite moves by hand, so no test waits for a lease to end; only what rests on the store's own
// clock, and what arrives late, takes real time, less than a second each.
//
// That the algorithm itself is right is shown by the tests of this package: worlds in virtual time, of machines
// whose clocks are wrong in every way that is allowed and processes that crash, on a network that spares
// nothing, in which somebody sees all that anybody relies on; and a model of the algorithm, small enough to be
// read at once, of which no part can be left out.
//
// It never looks into a store but through its interface and the hooks of the Config, and it starts no
// goroutine that it does not wait for.
package claimtest
