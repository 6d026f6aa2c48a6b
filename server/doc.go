// Package server is the network front of one member. It connects etcd's clients and tools to a [node.Node], serves
// leases on names, and shows the member's state to operators over HTTP.
//
// It promises that a client receives exactly what the member answered:
//   - A request with an unknown outcome is answered as timed out, never as failed.
//   - An answer carries the header of the state that was read.
//   - A renewal is acknowledged only after the member has made it.
//   - Errors have the texts and codes of etcd 3.7, because clients tell errors apart by their text.
//
// How it works: [New] checks the configuration. [Server.Start] binds both listeners before it reports success. Two
// fronts turn requests into calls of the node and its answers into messages: internal/etcdapi and internal/namesapi.
// All errors of a front pass through its one table. Package internal/forwarding lists the methods that only the leader
// serves. A follower forwards such a request or stream to the leader. The leader receives it at its port for members.
//
// Each long stream (keep-alives, renewals, claims, watches) has one goroutine that reads and one that writes, and a
// bounded amount of work between them. The server stops reading from a client that does not read its answers. The
// client's identity and the memory limit bound what one client may use (internal/admission, budget.go, limits.go).
//
// [Server.Stop] first reports that the server is not serving, and ends the long streams. Unary requests may finish
// until its context ends. It returns when every goroutine has ended.
//
// Over gRPC the server serves etcd's KV, Lease, Watch, Cluster.MemberList, Maintenance, Lock and Election, and reports
// that authentication is not enabled. It also serves grpc.health.v1, reflection, and leasekeeper.v1: leases on names
// (internal/namesapi), and the members (members.go). Other methods answer Unimplemented. Over HTTP it serves /livez,
// /readyz, /healthz, /health, /version, /metrics, leasekeeper.v1 as JSON below /v1, and the web console below /console
// (console.go, internal/pages). With a certificate, both listeners speak TLS only.
//
// The client port also serves HTTP: etcd's API as JSON below /v3 (etcd_json.go), health, version and metrics. The first
// bytes of a connection say whether it carries gRPC (protocols.go), which keeps gRPC's own transport.
//
// It never reads the environment or flags, writes to standard output, or recovers from a panic: a broken invariant must
// end the process before it answers again. It logs no single request, with two exceptions: one that fails with an
// unexpected error, and one that its client traces and that is slow (slow.go, internal/tracing). It replicates nothing
// and owns no data. The node belongs to the caller, who starts it before the server and stops it afterwards.
//
// Codes such as G1 are rules of docs/design/time-and-identity.md.
package server
