// Package mongodb keeps leases in a MongoDB database, version 4.2 or later.
//
//	mongodb://user:password@host1,host2/database?replicaSet=rs
//	mongodb+srv://host/database?ns=staging&prefix=locks_&clock=store&poll=250ms
//
// ns, prefix, clock and poll are read here, everything else by MongoDB's own driver. Without a database it is
// leasekeeper. Concerns and preferences in the URL do not matter to leases.
//
// It promises what package claim promises, whatever the clocks of machines show, and loses nothing of what was
// acknowledged as long as a majority of the replica set survives. On a single mongod it lasts as long as that one's
// disk, of which a warning goes to [Config.Log], and to the log of a keeper. After a restore from a backup, raise the floor.
//
// # How it works
//
// Each name has one document, which is what people read in mongosh:
//
//	db.leasekeeper_leases.find({ns: "default", holder: {$ne: ""}}, {name: 1, holder: 1, token: 1, since: 1, card: 1})
//
// Its _id is the namespace, a slash, and the name. So no index is needed but the one on _id, which is unique
// everywhere. What a program calls its names, holders and machines is always a value, and never the name of a
// field. Beside it are three small collections: when each machine has first seen which write (observations), until
// when machines are known to have been writing (clocks), and what a namespace is like (namespaces). A namespace is
// made when it is first opened; the rights to find, insert, update, remove, listCollections and listIndexes are
// enough, as the role readWrite has them.
//
// A write is one conditional update, by _id and by the op of the write before, and waits until the journals of a
// majority have it (w: "majority", j: true). It is sent once: MongoDB's retryable writes are not used, since only
// package claim knows whether a repetition still makes sense, and the op already sees to it that a write is never
// done twice. Renewals send only what they change, and many go in one command. The server then only counts how many
// were done; unless it was all or none, one read that is causally after the command tells which.
//
// What decisions rest on is read with read concern "linearizable", of one document, with a limit of time. On a
// single mongod there is no such thing and no need. The driver repeats reads while there is time.
//
// An error is ErrUnavailable only if the driver surely sent nothing, or if the server said that it is not the
// primary or that nothing was written. An interruption by a change of the primary, a limit of time, a connection
// that broke and everything that is not known are ErrUnknownOutcome.
//
// Opening refuses, and says what to do about it, what MongoDB would bear in silence: a TTL index, a capped
// collection, a collation, a collection without an index on _id or sharded by anything else, and FerretDB, where
// two clients can both win one conditional update.
//
// Changes of owners are told by a change stream where the server has those; else who waits asks now and then.
//
// In store-clock mode ([Config.StoreClock]) it is $$NOW of the primary that judges, in the update that writes. Then
// the clock of a primary that jumps ahead, at a failover for instance, ends leases early. A router is refused:
// each has a clock of its own. The mode is a property of the namespace, stands in each record, and is compared by
// each write.
//
// # The gate
//
// [Gate] makes a transaction commit only if a lease is still held. It writes to the record of the lease in that
// transaction. Until it ends renewals wait as well, so it must be shorter than a third of the TTL.
//
// # What has been run where
//
// The suites for stores and for backends, lost requests and answers, and the fence run on FerretDB 1.24 with the
// official driver, one command at a time (internal/test/ferrettest). What is told to replica sets and routers, and what
// is made of their answers, runs against a peer that plays them. Store-clock mode, change streams, transactions
// with the gate, and read concerns have not been run on a real mongod by the authors: their tests are there, and
// run with MONGODB_URI=mongodb://... naming a replica set. Services that imitate MongoDB are not tested at all.
//
// # What it never does
//
// It makes no index, reads no secondary, and takes no part in a session of the caller's but by Gate. It deletes no
// record but when tombstones are collected. It does not close a client that was passed to [New].
package mongodb
