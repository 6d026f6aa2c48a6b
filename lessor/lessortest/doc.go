// Package lessortest has stand-ins for tests of code that needs a lessor but does not test leases.
//
// [Fake] remembers only which ids were granted. [FakeTxnDelete] deletes nothing. Neither starts a goroutine
// or reads a clock. Neither is safe for concurrent use.
package lessortest
