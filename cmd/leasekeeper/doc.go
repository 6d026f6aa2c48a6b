// Command leasekeeper runs a lease server, and lets people look at one and operate it.
//
// A command that could not do its work says in one sentence what happened and what to do about it. Its exit code says
// which kind of trouble it was (internal/command). Programs read the output of -o json, whose field names stay.
//
// Each command has a file of its own in a package below internal. These packages return the commands as a list, and
// root.go joins the lists:
//
//   - internal/serve runs a server;
//   - internal/client asks a server and operates it;
//   - internal/names works with names on any backend;
//   - internal/runner runs a command under a lease.
//
// They use internal/settings, internal/store, internal/command and internal/console. No other packages of the module
// read flags, the environment or the configuration file, or write to standard output.
//
// The command decides nothing about leases.
package main
