// Package etcd is the backend for plain etcd, 3.5 and later.
//
//	etcd://host1,host2/prefix                  port 2379, or give each host its own
//	etcds://user:password@host1:2379/prefix    with TLS, and a user of etcd's
//	etcd://host/prefix?ca=ca.pem&cert=client.pem&key=client.key
//
// It promises to say no more than etcd said. The holder of a name is the one that a linearizable read shows. A lease is lost
// only if such a read shows that its key is gone. If a request may have had an effect, and the backend cannot find out, the
// error is [backend.ErrUnknownOutcome].
//
// How it works. The backend follows etcd's own recipe for locks. So it excludes etcdctl lock, concurrency.Mutex of etcd's Go
// client and the Lock service on the same name. A claim grants an etcd lease, whose id is made from [backend.Claim.ID], and
// puts the key PREFIX/NAME/ID (in hexadecimal), attached to that lease. These keys are the queue of the name. The key that
// was created first owns the name, and its create revision is the fencing token. The value of the key is the holder's card
// in JSON.
//
// A key is in the queue only if it lies exactly one level below the name, and is attached to the lease that it is named
// after. So a holder of jobs/nightly never blocks jobs. Programs that follow the recipe to the letter differ. For a
// concurrency.Mutex on jobs, every key below jobs/ is in its queue. So it waits for the holders of jobs/nightly as well.
//
// Waiting. A waiter watches the key directly before its own, and its own. It does not poll.
//
// Renewals. Each renewal does two things for all leases together. It renews them in etcd, with a stream of its own for each
// attempt, so no answer can be taken for the answer to another attempt. And it checks that their keys are there and attached
// to them, which etcd's answer to a renewal does not say. The backend reports a lease as renewed only if both are so. If a
// person deletes a key by hand, its holder notices at the next renewal, after about a third of the TTL. Until then two
// holders may act. The backend believes that a lease is gone only if a later check shows that its key is gone too.
//
// A renewal continues until its context ends, however slow etcd is. When etcd has been silent for a second, then two, four
// and so on, the backend makes a second attempt at another endpoint; at most two attempts are under way. A hedge
// ([backend.IsHedge]) begins at another endpoint than the call that it hedges.
//
// Endpoints. Other requests go to one member until it fails or is silent, and then to the next. A single endpoint has two
// connections, since often only the connection is dead. A request that is sent twice has its effect once.
//
// Marks. The mark of a name is the key /leasekeeper/marks/PREFIX/NAME, which is attached to no lease. A transaction that raises
// it requires that the key of the holder's lease is there, and that the mark is as it was read. [Backend.Finish] deletes the
// holder's key in that transaction. If an answer was lost, a later call recognizes the mark by its token, also among its
// earlier versions. Those must not be compacted in the meantime: the outcome is unknown otherwise. No prefix may begin with
// /leasekeeper/marks. A user of etcd needs the right to read and write the keys of marks too.
//
// Holding on. etcd cannot change the TTL of a lease. So a name stays held after [Backend.Finish] for at most one TTL: the
// backend renews the lease once more if it could end too early, and then revokes it as [Backend.Revoke] does without now. So
// the lease is renewed no more, and runs out. A lease that a person has revoked is not held on.
//
// It keeps no lease and counts no deadline. No goroutine outlives the call that started it. It has no history, pins,
// transfers or priorities: etcd has no place for them.
//
// Two limits. A request that was cut off can still arrive, even after the lease was released; at worst the name is then
// taken, by no process, for one TTL. And a lease can last longer than its TTL, because etcd restarts that count when its
// leader changes.
package etcd
