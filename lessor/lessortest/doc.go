// Package lessortest has stand-ins for tests of code that needs a lessor but is not about leases.
//
// It promises to do as little as possible: [Fake] remembers which ids were granted and nothing else, and
// [FakeTxnDelete] deletes nothing. Neither starts a goroutine, reads a clock, or may be used by two
// goroutines at once.
package lessortest
