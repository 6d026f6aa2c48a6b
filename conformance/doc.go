// Package conformance holds our server to etcd's v3 API by driving both with
// one and the same suite.
//
// It owns the tests and the harness that runs them: two targets, etcd itself
// and leasekeeper, each as a process of its own with an empty data folder, and
// two clients that nobody has changed, etcdctl as a process and client/v3 in
// the test process. What a test asserts has to hold on etcd; that is what makes
// it a statement about the API and not about our reading of it.
//
// It is a module of its own, so that etcd's server and its dependencies never
// come near the product, and it imports none of our code: it builds the command
// in the parent folder and talks to it over the network, as users do.
//
//	go test ./...                       both targets
//	go test ./... -target=leasekeeper   ours alone
//	go test ./... -target=etcd          etcd alone, to prove the suite itself
//
// What leasekeeper does not serve yet is listed in pending_test.go, area by area.
// Tests of these areas run on etcd as always; of leasekeeper they ask that it
// answers Unimplemented, so that a line left in the list too long is found out.
//
// Rules for tests: each gets a fresh server, so revisions are written out as
// numbers. Nothing is asserted about speed, with one exception in each
// direction: a lease never ends before its granted TTL, counted from just before
// the request was sent, and it does end within a generous bound after it. That
// something did not happen is shown by a later answer that would have had to come
// after it (see watchStream.until), never by waiting a while.
package conformance
