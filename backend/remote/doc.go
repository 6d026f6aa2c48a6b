// Package remote is the backend for our own server: leases that live in a Leasekeeper server.
//
//	leasekeeper://host1,host2/namespace       port 2379, or give each host its own
//	leasekeepers://host1:2379/namespace       with TLS
//	leasekeeper://host/namespace?ca=ca.pem&cert=client.pem&key=client.key
//
// It promises to say no more than the server said. A lease is lost only if the server has said so; what may
// have happened and cannot be found out is [backend.ErrUnknownOutcome].
//
// How it works. It speaks leasekeeper.v1. A namespace is put before each name on the wire, with a slash
// between, and taken off again; what the server keeps under that name is what etcd's recipe for locks keeps,
// so etcdctl lock namespace/name and concurrency.Mutex stand in the same line.
//
// A claim is one request and one answer, and so is a release. They go over one stream per connection that stays
// open: requests made while a message is being sent go in the next one together, and what the server answers
// together comes in one message. A claim's lease has an id made from [backend.Claim.ID], so what was sent twice is
// one lease. One that stands in line is told "yours" on the same stream; if that breaks, the same question is
// asked again. Where an earlier attempt may still be on its way when another is answered, it is made void before
// the answer is told. Of requests that were sent and not answered when a stream breaks nothing is known. A
// server that does not know such streams is asked for each name by itself.
//
// Renewals go over one stream per connection that stays open. A message has a number and many ids, the answer
// repeats the number and names only those that were not renewed. An answer to a message that nobody waits for
// any more is dropped, and so is all that a closed stream may still bring. A message that stays unanswered is
// sent over another endpoint as well, and the first answer counts: either renewal is later than the call.
//
// Requests go to one endpoint until it stalls or fails, and then to the next; with one endpoint there are two
// connections to it, since often it is the connection that is dead. Everything that is sent twice has the
// effect of once: a revocation names the token, a transfer the lease, and when the second answer says that
// there was nothing to do any more, it is looked up whether the first attempt was it. Only pins name no more
// than the name: one that was cut off can still arrive.
//
// What it never does: it keeps no lease, renews nothing by itself and counts no deadline. No goroutine
// outlives [Backend.Close]. There are two for each stream of renewals, and of claims and releases; with an older server, one for each claim
// in line.
package remote
