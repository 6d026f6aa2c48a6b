// Package etcd is the backend for plain etcd, 3.5 and later: leases live in the etcd that is there anyway.
//
//	etcd://host1,host2/prefix                  port 2379, or give each host its own
//	etcds://user:password@host1:2379/prefix    with TLS, and a user of etcd's
//	etcd://host/prefix?ca=ca.pem&cert=client.pem&key=client.key
//
// It promises to say no more than etcd said. The holder of a name is the one that etcd names, at the moment of a
// linearizable read; a lease is lost only if such a read shows that its key is gone; what may have happened and
// cannot be found out is [backend.ErrUnknownOutcome].
//
// How it works. It is etcd's own recipe for locks, so it excludes etcdctl lock, concurrency.Mutex of etcd's
// Go client, and the Lock service on the same name: who wants a name grants an etcd lease, with an id made
// from [backend.Claim.ID], and puts the key PREFIX/NAME/ID (in hexadecimal) bound to it; of these keys the one
// that was created first owns the name, and its create revision is the fencing token. The value of the key is
// the holder's card in JSON. Only keys exactly one level below the name contend, and only if they are bound
// to the very lease that they are named after; so holding jobs/nightly never blocks jobs. Programs that follow
// the recipe to the letter see that otherwise: for a concurrency.Mutex on jobs every key below jobs/ is
// before it, so it waits for the holders of jobs/nightly as well.
//
// Waiting is watching: the key before one's own in line, and one's own. Nothing is polled.
//
// Each renewal asks two things, for all leases together: that etcd prolongs them, over a stream of its own
// for each attempt, so that no answer can be taken for that of another request; and that their keys are
// still there and bound to them, which etcd does not tell who renews. A lease is reported as renewed only if
// both are so. A key that somebody deletes by hand is therefore noticed at the next renewal, after a third of
// the TTL or so, and until then two may believe to hold the name. etcd's word that a lease is gone is
// believed only when the key is seen to be gone after it.
//
// A renewal goes on until its context ends, however slow etcd is. While nothing comes for a second, then two, four and so
// on, a second attempt is made at another endpoint; at most two are under way. A hedge ([backend.IsHedge]) begins at
// another endpoint than the call that it hedges.
//
// Other requests go to one member until it stalls or fails, and then to the next; with one endpoint there
// are two connections to it, since often it is the connection that is dead. Everything that is sent twice has
// the effect of once.
//
// What it never does: it starts no goroutine that outlives the call it was started for, keeps no lease, and
// counts no deadline. It cannot do what etcd has no place for: history, pins and transfers.
//
// Two things to know. A request that was cut off can still arrive, even after the lease was released: at
// worst the name is then taken, by nobody, for one TTL. And a lease can last longer than its TTL, for etcd
// starts that count over when its leader changes.
package etcd
