// Package backendtest is the suite of tests that every backend must pass.
//
// It promises that a backend which passes [Run] can serve the root package. It answers as [backend.Backend]
// says, down to the kinds of its errors, and a keeper on it keeps its own promises. An ability that a backend
// lacks is not skipped: it is listed in [Config.Cannot], and the suite checks that using it returns a
// [backend.UnsupportedError] that names the backend and the ability.
//
// How it works: the test of a backend makes a [Config] and calls Run. Each test of the suite gets a [Store] of
// its own from [Config.New], opens as many clients of it as it needs, and uses names that no other test uses.
// So the Stores may all be one server. Time passes by sleeping; with [Config.Bubble] every test runs in a
// bubble of testing/synctest, where that costs nothing.
//
// It never looks into a store except through the backend. In a bubble, goroutines that a client leaves behind
// when it is closed fail the test; elsewhere the caller has to check for those.
package backendtest
