// Package runner owns `leasekeeper run`, which runs a command while it holds a name, and `leasekeeper explain`, which
// says what follows from the same settings.
//
// Package internal/supervise ends the command before its lease does. This package acquires the name, passes the lease
// on to internal/supervise, and turns the outcome into an exit code.
package runner
