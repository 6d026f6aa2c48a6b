// Package ferrettest tests what leases on MongoDB rest on, on a server that speaks MongoDB's protocol and runs
// inside the test: FerretDB with its SQLite backend.
//
// It is a module of its own, so that nobody who uses leases downloads FerretDB.
//
// FerretDB is no place for leases: it does a conditional update as a read and then a write, and two
// connections can come between each other's. So it stands behind a [Proxy] that lets one command through at a
// time, whatever connection it came by, and that says so to who asks; package mongodb refuses a FerretDB
// without it. It also has no transactions of several documents, no change streams, no updates by pipeline
// ($$NOW) and no read concerns. What needs those runs where MONGODB_URI names a replica set of a real mongod.
//
// The proxy also loses requests and answers on demand, so that what is said of unknown outcomes is tested with
// the real driver on real connections. The command leasekeeper is built and run against it, too, with holders that
// are killed, and with one that stood still past its deadline and then writes.
package ferrettest
