// Package process runs a server as a process of a test: it starts it, waits until it is ready, kills it, and shows the end of
// its log.
//
// A [Process] is one run of a program. A server that starts again is another Process, which may append to the same
// log. The package imports none of our code, so that every module of tests can use it. It never starts a process again by
// itself.
package process
