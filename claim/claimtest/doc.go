// Package claimtest tests what implements [claim.Store], and programs that lease names on one.
//
// It promises that a store which passes [Run] can stand under package claim: every sentence of the
// interface has a test, and real clients on it keep their own promises. [Memory] is a store in the memory
// of one process, [Faulty] carries the calls to any store through a bad network, and [Plain] hides what a
// store can do beyond the least.
//
// How it works: the test of a store makes a [Config] and calls Run, which opens as many clients as it needs,
// as if of as many processes, and uses names that no other test uses. Clients of package claim are given
// clocks that the suite moves by hand, so no test waits for a lease to end.
//
// It never looks into a store but through its interface and the hooks of the Config, and it starts no
// goroutine that it does not wait for.
package claimtest
