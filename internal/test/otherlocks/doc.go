// Package otherlocks runs the programs of docs/compare: with the locks of other projects, with both kinds of lock, and with
// leases.
//
// It promises that every program on the pages for PostgreSQL's advisory locks, etcd, redsync and Consul compiles. It also
// promises that the programs of a change from PostgreSQL's advisory locks, etcd or redsync never work at the same time, and
// that what these pages say can go wrong does go wrong. Consul's programs are only compiled.
//
// It is a module of its own, because the root module must not depend on these libraries. It has tests only. It starts
// databases by package internal/test/databases, and etcd in the version that conformance names. The pages for client-go
// and flock are tested in contrib/client-go and cmd/leasekeeper.
package otherlocks
