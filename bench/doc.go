// Command bench measures our server, etcd, and a gRPC server that does nothing: the same load, on the same machine and
// disk, in one run.
//
// It owns the load, the targets as processes, and the table. It builds the command in the parent directory and talks to it
// over the network, as users do. It uses the plain stubs of etcd's API, so that the costs of a client library are not
// measured. Only names are held with libraries: a Mutex with etcd's own, and others with our
// Keeper, which is the only code of ours that it imports, besides the stubs of our API. It is a module of its
// own, so that the product does not depend on etcd's client. etcd itself is built in another module, below reference, so
// that our requirements do not change it.
//
//	go run .                  single servers; about an hour and a half
//	go run . -quick           the same with less of everything, to see that it works
//	go run . -run expir       rows whose name matches
//	go run . -target keeper   targets whose name matches
//	go run . -board           the same, and write the board in docs/performance.md
//	go run . -against COMMIT  twelve rows of this tree and of another commit
//	go run . -cluster         three members that are one cluster, and three of etcd
//	go run . -databases       names in databases, and other locks that people use there
//
// How it works: a scenario (scenario.go) is a name and a function that loads one server and returns
// figures. For each scenario and round it starts the targets one after the other, each on an empty
// directory. It ends each before the next, so that two servers never run at once. The figures of several rounds
// become their median. Each row of the table is one figure. With -cluster a target is three processes
// (cluster.go), a load on them is a trial (trials.go), and links (link.go) delay messages between
// members. A recorder (recorder.go) prints each row when it is measured and keeps it in a file (journal.go), from
// which an interrupted run resumes. The board (board.go) is a table of recorded rows in a page. A comparison
// (against.go) measures two builds of our server in rounds.
//
// Rules: each scenario sends the same requests to every target. Names are the exception: each target does the same task in
// its own way (README.md says what differs). bench does not retry: a failed request fails the scenario on that target. The
// run fails if a lease ends early, a name has two holders or is lost, or an acknowledged write is lost. Tests assert
// nothing about speed.
package main
