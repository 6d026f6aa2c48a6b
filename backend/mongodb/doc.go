// Package mongodb keeps leases in a MongoDB database, version 4.2 or later.
//
//	mongodb://user:password@host1,host2/database?replicaSet=rs
//	mongodb+srv://host/database?ns=staging&prefix=locks_&clock=store&poll=250ms
//
// This package reads ns, prefix, clock and poll; MongoDB's own driver reads everything else. The default
// database is leasekeeper. Concerns and preferences in the URL have no effect on leases.
//
// It gives the promises of package claim, whatever the clocks of machines show. An acknowledged write lasts as
// long as a majority of the replica set survives. On a single mongod it lasts as long as that server's disk; a
// warning about that goes to [Config.Log], and to the log of a keeper. After a restore from a backup, raise the
// floor.
//
// # How it works
//
// Each name has one document, which people can read in mongosh:
//
//	db.leasekeeper_leases.find({ns: "default", holder: {$ne: ""}}, {name: 1, holder: 1, token: 1, since: 1, card: 1})
//
// Its _id is the namespace, a slash, and the name. So it needs no other index than the one on _id, which is
// unique everywhere. The names of leases, holders and machines are always values, and never names of fields.
// More collections are small:
//
//   - observations: when each machine first saw which write;
//   - clocks: until when machines are known to have been writing;
//   - namespaces: the mode and floor of each namespace;
//   - tickets: which processes wait for which names. No decision depends on them.
//
// Programs from before there were marks drop the field mark of a document that they replace. Replace all of them before
// you rely on marks.
//
// A namespace is created when it is first opened. The privileges to find, insert, update, remove,
// listCollections and listIndexes suffice; the role readWrite has them.
//
// A write is one conditional update, by _id and by the op of the write before. It waits until the journals of a
// majority have it (w: "majority", j: true). It is sent once, without MongoDB's retryable writes: only package
// claim knows whether a repetition still makes sense, and the op ensures that no write is done twice. Renewals
// send only the fields that they change, and many go in one command. The server then only counts how many were
// done. Unless it was all or none, one causally consistent read after the command shows which.
//
// Reads for decisions use read concern "linearizable", for one document, with a time limit. A single mongod
// neither has nor needs that. The driver repeats reads while there is time.
//
// An error is ErrUnavailable only if the driver certainly sent nothing, or if the server said that it is not
// the primary or that nothing was written. ErrUnknownOutcome stands for an interruption by a change of the
// primary, a time limit, a broken connection, and every unknown error.
//
// Opening refuses, with advice, what MongoDB would accept silently: a TTL index, a capped collection, a
// collation, a collection without an index on _id or sharded by anything else. It also refuses FerretDB, where
// two clients can both win one conditional update.
//
// Processes that wait for a name have tickets in its queue, by priority and then in their order. The head of the queue
// asks four times per poll interval, and the others once. A process that is the head and does not claim a free name is
// passed over. A change stream reports changes of owners at once if the server has change streams.
//
// In store-clock mode ([Config.StoreClock]) $$NOW of the primary decides, in the update that writes. If the
// clock of a primary jumps ahead, for instance at a failover, leases then end early. A router is refused: each
// has a clock of its own. The mode is a property of the namespace, is stored in each record, and is compared by
// each write.
//
// # The gate
//
// [Gate] makes a transaction commit only if a lease is still held. It writes to the record of the lease in that
// transaction. Until the transaction ends renewals wait as well, so it must be shorter than a third of the TTL.
//
// # What has been run where
//
// On FerretDB 1.24, with the official driver and one command at a time, these tests run
// (internal/test/ferrettest): the suites for stores and for backends, lost requests and answers, and the fence.
// The conversation with replica sets and routers is tested against a peer that plays them. The authors have not
// run store-clock mode, change streams, transactions with the gate, and read concerns on a real mongod. Their
// tests exist, and run with MONGODB_URI=mongodb://... naming a replica set. Services that imitate MongoDB are
// not tested at all.
//
// # What it never does
//
// It creates no index, reads no secondary, and joins a session of the caller's only in Gate. It deletes records
// only when tombstones are collected. It does not close a client that was passed to [New].
package mongodb
