// Package conformance holds our server to etcd's v3 API by driving both with
// one and the same suite.
//
// It owns the tests and the harness that runs them: two servers, etcd itself
// and leasekeeper, each as a process of its own with an empty data folder, and
// two clients that nobody has changed, etcdctl as a process and client/v3 in
// the test process. Our server is a target in three forms: alone, and as a group
// of three of which clients know one member that does not lead, or all of them. What a test asserts has to hold on etcd; that is what makes
// it a statement about the API and not about our reading of it.
//
// It is a module of its own, so that etcd's server and its dependencies never
// come near the product, and it imports none of our code: it builds the command
// in the parent folder and talks to it over the network, as users do.
//
//	go test ./...                           all targets
//	go test ./... -target=leasekeeper       our server, alone
//	go test ./... -target=follower,everyone our group of three
//	go test ./... -target=etcd              etcd, to prove the suite itself
//
// What a server says of itself is another thing in a group. Tests of that run where
// a server is alone (eachServer); those in members_test.go ask each member of a cluster,
// of etcd too. TestClientsOutliveRepeatedLeaderKills does everything at once while the
// leader of our group is killed every few seconds, and prints what was tried again:
//
//	go test ./... -run TheLeaderIsKilled -v -failover 10m
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
