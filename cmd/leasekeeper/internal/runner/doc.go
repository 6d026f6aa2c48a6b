// Package runner owns `leasekeeper run`, which runs a command while it holds a name, and `leasekeeper explain`, which
// prints the consequences of the same settings.
//
// This package acquires the name, hands the lease to internal/supervise, and turns the outcome into an exit code.
// internal/supervise ends the command before its lease ends.
package runner
