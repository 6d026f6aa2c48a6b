// Package claimtest tests implementations of [claim.Store], and programs that lease names on one.
//
// It promises that a store which passes [Run] can serve package claim. Every sentence of the interface has a
// test, and real clients on the store keep their own promises, even when requests and answers get lost. It has
// three stores for tests:
//
//   - [Memory] is a store in the memory of one process, linearizable and complete.
//   - [Faulty] carries the calls to any store over a network that delays, loses and repeats them and answers
//     with old data.
//   - [Plain] hides the optional abilities of a store.
//
// How it works: the test of a store makes a [Config] and calls Run. Run opens as many clients as it needs, as
// if of as many processes, and a namespace for each of its tests. Processes that lease names have clocks that
// the suite moves by hand, so no test waits for a lease to end. Only what depends on the store's own clock, and
// what arrives late, takes real time, less than a second each. [RunCrashes] is for stores whose database can be made to
// crash.
//
// The tests of this package show that the algorithm itself is right. Worlds in virtual time have machines whose
// clocks are wrong in every allowed way, processes that crash, and a network with every fault; an observer sees
// all leases on which any process relies. A model of the algorithm is small enough to be read at once, and
// breaks without any of its parts.
//
// It never looks into a store except through its interface and the hooks of the Config, and it waits for every
// goroutine that it starts.
package claimtest
