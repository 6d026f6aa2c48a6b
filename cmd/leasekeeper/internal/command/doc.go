// Package command owns what every command of leasekeeper has in common: its exit codes, the errors that carry them, and
// the checks of its arguments.
//
// A command that fails returns an [Error]. [Report] prints it in one line and returns its exit code. The package never
// ends the process and never talks to a store or a server.
package command
