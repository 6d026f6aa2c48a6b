// Command bench measures our server beside etcd and beside a gRPC server that does nothing: the same load,
// on the same machine and disk, in one run.
//
// It owns the load, the targets as processes, and the table. It builds the command in the parent directory and
// talks to it over the network, as users do, with the plain stubs of etcd's API so that what a client library
// costs is not measured. Only names are held with libraries: a Mutex with etcd's own, and others with our
// Keeper, which is the only code of ours that it imports beside the stubs of our API. It is a module of its
// own so that etcd's client never comes near the product; etcd itself is built in another, below reference,
// so that what we require does not change it.
//
//	go run .                  single servers; about an hour and a half
//	go run . -quick           the same with less of everything, to see that it works
//	go run . -run expir       rows whose name matches
//	go run . -target keeper   targets whose name matches
//	go run . -board           the same, and write the board in docs/performance.md
//	go run . -against COMMIT  twelve rows of this tree and of another commit
//	go run . -cluster         three members that are one cluster, and three of etcd
//	go run . -databases       names in databases, and the locks that people use there otherwise
//
// How it works: a scenario (scenario.go) is a name and a function that loads one server and returns
// figures. For each scenario and round the targets are started one after the other, each on an empty
// directory, and ended before the next: never are two servers there at once. The figures of several rounds
// become their median. Each row of the table is one figure. With -cluster a target is three processes
// (cluster.go), what is measured of them a trial (trials.go), and links (link.go) delay what they say to
// each other. A recorder (recorder.go) prints each row when it is measured and keeps it in a file (journal.go), from
// which an interrupted run resumes. The board (board.go) is a table of recorded rows in a page. A comparison
// (against.go) measures two builds of our server in rounds.
//
// Rules: nothing is measured that is not the same request for every target, but for names, where it is the
// same task with what each target has for it (README.md says what differs). No retries of ours: a request
// that fails fails the scenario on that target. A lease that ends before its time, a name that two hold at
// once or that is lost, and an acknowledged write that is lost, fails the run, however fast the rest was. Tests assert nothing about speed.
package main
