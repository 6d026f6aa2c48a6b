// Package conformance holds our server to etcd's v3 API by driving both with
// one and the same suite.
//
// It owns the tests and the harness that runs them. There are two servers, etcd
// and leasekeeper, each a process of its own with an empty data directory. There
// are two unchanged clients, etcdctl as a process and client/v3 in the test.
// Our server is a target in three forms: alone, and as a cluster of three of
// which clients know one follower or all members. What a test asserts must hold
// on etcd too. So it is a statement about the API, and not about our reading of it.
//
// It is a module of its own, so that the product does not depend on etcd's
// server, and it imports none of our code: it builds the command in the parent
// directory and talks to it over the network, as users do.
//
//	go test ./...                           all targets
//	go test ./... -target=leasekeeper       our server, alone
//	go test ./... -target=follower,everyone our cluster of three
//	go test ./... -target=etcd              etcd, to prove the suite itself
//
// A server reports itself differently in a cluster. Tests of that run where
// a server is alone (eachServer); those in members_test.go ask each member of a cluster,
// of etcd too. TestClientsOutliveRepeatedLeaderKills does everything at once while the
// leader of our cluster is killed every few seconds, and TestClientsOutliveReplacedMembers
// while all members are replaced. Both print what was retried, and porcupine checks that the
// registers which the clients share are linearizable:
//
//	go test ./... -run ClientsOutlive -v -failover 10m -replacements 20
//
// etcdctl_versions_test.go compares what etcdctl 3.4 to 3.7 print on our cluster with what they print on etcd's. The table of
// commands is in etcdctl_table_test.go, and a command or flag that it lacks fails a test.
//
// What leasekeeper does not serve yet is listed in pending_test.go, area by area.
// Tests of these areas run on etcd as always; leasekeeper must answer
// Unimplemented to them, so that an outdated line in the list is noticed.
//
// Rules for tests: each gets a fresh server, so revisions are written out as
// numbers. Nothing is asserted about speed, with one exception in each
// direction: a lease never ends before its granted TTL, counted from just before
// the request was sent, and it does end within a generous bound after it. That
// something did not happen is shown by a later answer that would have had to come
// after it (see watchStream.until), never by a pause.
package conformance
