// Package backendtest is the behaviour that every backend must show, as one suite of tests.
//
// It promises that a backend which passes [Run] can stand behind the root package: what it answers is what
// [backend.Backend] says, down to the kinds of its errors, and a keeper on it keeps its own promises. What a
// backend cannot do is not skipped: it is listed in [Config.Cannot], and asserted to be an
// [backend.UnsupportedError] that names the backend and the thing.
//
// How it works: the test of a backend makes a [Config] and calls Run. Each test of the suite gets a [Store]
// of its own from [Config.New], opens as many clients of it as it needs, and uses names that no other test
// uses, so that the Stores may all be one server. Time passes by sleeping; with [Config.Bubble] every test
// runs in a bubble of testing/synctest, where that costs nothing.
//
// It never looks into a store but through the backend, and goroutines that a client leaves behind when it
// is closed fail the test if it runs in a bubble; elsewhere the caller watches for those.
package backendtest
