// Package server is the network front of one member: it lets etcd's clients and tools talk to a
// [node.Node], and operators look at it over HTTP.
//
// It promises that what a client is told is what the member said. A request whose fate is unknown is
// answered as timed out, never as failed; an answer carries the header of the state it was read from; a
// renewal is acknowledged only after the member has made it. Texts and codes of errors are those of etcd
// 3.7, because clients tell errors apart by their text.
//
// How it works: [New] checks the configuration, [Server.Start] binds both listeners and only then reports
// success. Two fronts turn requests into calls of the node and its answers back into messages: internal/etcdapi and
// internal/namesapi. Each has one table that all its errors pass through. A method that only the leader can carry out is listed
// in internal/forwarding: a follower forwards the request or the stream to the leader, and takes forwarded ones at its
// port for members. The long streams (keep-alives, renewals, claims, watches) have one goroutine
// that reads and one that writes each, and a bounded amount of work between them: the server stops reading from a client
// that does not read its answers. What one client may use is bounded by its identity and by the memory limit
// (internal/admission, budget.go, limits.go). [Server.Stop] first says that it is not serving, ends the long streams, lets short requests finish for as long as its context allows, and
// waits for every goroutine.
//
// What is served: etcd's KV, Lease, Watch, Cluster.MemberList, Maintenance, Lock and Election, a word that
// authentication is not enabled, grpc.health.v1 and reflection; and leasekeeper.v1, our own service for
// names (internal/namesapi), whose errors have a table of their own, and for the members (members.go). Other methods answer Unimplemented. Over HTTP:
// /livez, /readyz, /healthz, /health, /version, /metrics, and leasekeeper.v1 as JSON below /v1. With a
// certificate both speak TLS only.
//
// It never reads the environment or flags, writes to standard output, logs single requests, or recovers
// from a panic: a broken invariant must end the process before it answers again. It does no replication
// and owns no data; the node belongs to the caller, who starts it before and stops it after the server.
package server
