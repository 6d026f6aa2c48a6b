// Package accident plays the accident against which fencing tokens are there, with real processes.
//
// What it promises: a holder that stood still past its deadline, was succeeded, and then goes on with the write
// that it was about to make, is refused by each guard below package fence; and without the guard the very same
// write destroys what its successor wrote. A test that showed only the first could pass because nothing
// dangerous happened.
//
// How it works: the test is the parent. It runs a server, makes a folder with files and a database, and serves
// what else is written to over HTTP. The holders are processes of their own, the test binary started again with
// orders in its environment. The first acquires a name, reads, checks its lease, and is stopped by SIGSTOP where
// it would write. A second one waits until the store gives it the name, reads and writes. Then the first is
// continued and writes, without a look at its lease: it has looked, before it was stopped. That each is where it
// should be is seen (what it says, what the kernel says of it), not waited for by the clock.
//
// The package has nothing but tests, and those are for systems that have SIGSTOP: on Windows they are not built.
//
// What it never does: it does not look for the places where a guard could be paused; the tests of the guards
// do.
package accident
