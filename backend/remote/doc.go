// Package remote is the backend for our own server: leases that live in a Leasekeeper server.
//
//	leasekeeper://host1,host2/namespace       port 2379, or give each host its own
//	leasekeepers://host1:2379/namespace       with TLS
//	leasekeeper://host/namespace?ca=ca.pem&cert=client.pem&key=client.key
//
// It promises to say no more than the server said. A lease is lost only if the server has said so. If a request may have
// had an effect, and the backend cannot find out, the error is [backend.ErrUnknownOutcome].
//
// How it works. The backend speaks leasekeeper.v1. It prepends the namespace and a slash to each name on the wire, and
// removes them from answers. The server keeps the keys of etcd's recipe for locks below that name. So etcdctl lock
// namespace/name and concurrency.Mutex wait in the same queue.
//
// Claims and releases. Each is one request and one answer. They share one Hold stream per connection (hold_stream.go, on
// the multiplexer of mux.go). Requests that callers make while a message is being sent go into the next message together,
// and the server answers several requests in one message. The id of a claim's lease is made from [backend.Claim.ID], so a
// claim that is sent twice is one lease. A claim that waits in the queue receives its second answer on the same stream. If
// that stream ends, Await makes the same claim again. If an earlier attempt may still arrive after another attempt was
// refused, the backend makes it void before it returns. If a stream ends, the outcome of its unanswered requests is
// unknown. A server without the method Hold receives each request by itself.
//
// Renewals. They share one Renew stream per connection (renew_stream.go, on the same multiplexer). A message has a number
// and many ids. The answer repeats the number, and names only the leases that were not renewed. The backend drops answers
// to messages for which no caller waits. If a message is not answered in time, the backend sends it to another endpoint as
// well, and takes the first answer: both attempts are later than the call, from which the new deadline counts.
//
// Endpoints. Requests go to one endpoint until it fails or is silent, and then to the next. A single endpoint has two
// connections, since often only the connection is dead. A request that is sent twice has its effect once: a revocation
// names the token, a transfer the lease. If the second answer is that nothing was left to do, the backend finds out whether
// the first attempt did it. Only a pin names nothing but the name: an attempt that was cut off can still arrive.
//
// It keeps no lease, renews nothing by itself, and counts no deadline. No goroutine outlives [Backend.Close]. Each stream of
// claims or of renewals has two goroutines; with an older server, each waiting claim has one.
package remote
