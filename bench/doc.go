// Command bench measures our server beside etcd and beside a gRPC server that does nothing: the same load,
// on the same machine and disk, in one run.
//
// It owns the load, the targets as processes, and the table. It imports none of our code: it builds the
// command in the parent folder and talks to it over the network, as users do, with the plain stubs of
// etcd's API so that what a client library costs is not measured; only a Mutex needs etcd's own library. It
// is a module of its own so that etcd's server never comes near the product.
//
//	go run .                  everything; reckoned at three quarters of an hour
//	go run . -quick           the same with less of everything, to see that it works
//	go run . -run expir       scenarios whose name matches
//	go run . -target keeper   targets whose name matches
//
// How it works: a scenario (scenario.go) is a name and a function that loads one server and returns
// figures. For each scenario and round the targets are started one after the other, each on an empty
// folder, and ended before the next: never are two servers there at once. The figures of several rounds
// become their median. Each row of the table is one figure.
//
// Rules: nothing is measured that is not the same request for every target. No retries: a request that
// fails fails the scenario on that target. A lease that ends before its time fails the run, however fast
// the rest was. Tests assert nothing about speed.
package main
