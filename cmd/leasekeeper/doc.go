// Command leasekeeper runs a lease server. It also inspects and operates servers, and holds names on any store.
//
// A command that fails prints one sentence: what happened, and what to do. Its exit code shows the kind of failure
// (internal/command). Programs read the output of -o json, whose field names never change.
//
// Each command has a file of its own in a package below internal. Each package returns its commands as a list, and
// root.go joins the lists:
//
//   - internal/serve runs a server;
//   - internal/client inspects and operates one server;
//   - internal/names works with names on any backend;
//   - internal/runner runs a command under a lease;
//   - internal/demo shows on one machine what a lease promises.
//
// They use internal/settings, internal/store, internal/command and internal/console. No other packages of the module
// read flags, the environment or the configuration file, or write to standard output.
//
// The command decides nothing about leases.
package main
