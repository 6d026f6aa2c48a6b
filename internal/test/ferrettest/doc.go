// Package ferrettest tests leases on MongoDB with a server that speaks MongoDB's protocol and runs inside the
// test: FerretDB with its SQLite backend.
//
// It is a module of its own, so that users of this library do not download FerretDB.
//
// FerretDB cannot keep leases: it executes a conditional update as a read and then a write, and another
// connection's write can come in between. So it is behind a [Proxy] that lets one command through at a time, of
// all connections, and that says so when it is asked. Package mongodb refuses a FerretDB without such a proxy.
// FerretDB also has no transactions of several documents, no change streams, no updates by pipeline ($$NOW) and
// no read concerns. Tests that need those run if MONGODB_URI names a replica set of a real mongod.
//
// The proxy also loses requests and answers on demand, so the tests check unknown outcomes with the real driver
// on real connections. They also build the command leasekeeper and run it on this server, with holders that are
// killed, and with one that is stopped past its deadline and then writes.
//
// Codes such as S4 are defects that docs/design/earlier-defects.md describes.
package ferrettest
