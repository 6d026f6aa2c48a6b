// Package command owns what all commands of leasekeeper share: exit codes, the errors that carry them, and the checks of
// arguments.
//
// A command that fails returns an [Error]. [Report] prints it in one line and returns its exit code. The package never
// ends the process and never talks to a store or a server.
package command
