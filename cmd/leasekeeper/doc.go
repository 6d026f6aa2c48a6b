// Command leasekeeper runs a lease server and lets people look at one and operate it.
//
// It promises to answer in plain words: a command that could not do its work says in one sentence what
// happened and what to do about it, and its exit code says which kind of trouble it was (see exit.go). What
// it prints for programs (-o json) keeps its field names.
//
// How it works: each command has a file of its own. serve.go puts together the member (internal/replica)
// and its network front (server), in a group also the connections to the other members (internal/peer), and ends them in
// the right order. status and lease are clients that talk gRPC in etcd's v3 API, and status also asks our own service for
// the members; found and transfer-leadership need that service. The commands about names work on any backend of package
// driver, which are linked in here (store.go), and by default on a file (state.go). run has internal/supervise end the
// command before its lease does. This is the only place in the module that reads flags, the environment and the
// configuration file, and that writes to standard output.
//
// It never decides anything about leases.
package main
