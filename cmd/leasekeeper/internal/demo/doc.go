// Package demo owns the command demo, which shows on one machine what a lease promises when processes die, stop and lose
// their network.
//
// # What it promises
//
// The demo prints what each worker reports, and ends with code 0 only if all facts hold (facts.go): tokens strictly
// increase, no two workers hold the name at once, and the resource refuses the write of a paused worker. It writes only
// to one temporary directory. When it ends, also by Ctrl-C or SIGKILL, it leaves no process and no file.
//
// # How it works
//
// All of these are processes, and all run this program:
//
//   - the command that the user starts (command.go). It only starts the next one and waits for it;
//   - the scenario (scenario.go, steps.go), which starts all others, injects the faults, and judges the record;
//   - three members of a cluster (cluster.go), and the web console;
//   - two workers (worker.go), which hold one name in turns and write to one file. Package filefence checks their tokens.
//
// Each worker reaches the members through its own link (link.go), a proxy that the scenario can cut. A worker prints
// reports (report.go), with the time on the machine's clocks. All processes read the same clocks, so the scenario can
// compare these times (record.go).
//
// # How it ends
//
// A child's standard input is a pipe from its parent. If the parent is killed, the pipe ends, and the child ends too: a
// scenario first ends its children and removes the directory. If the scenario itself is killed, the first process ends
// the rest of its process group, also a stopped worker, and removes the directory. Only if both are killed at once may
// the directory and a stopped worker stay.
//
// The package decides nothing about leases.
package demo
