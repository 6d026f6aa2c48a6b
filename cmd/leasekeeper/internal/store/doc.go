// Package store opens the store that a command was given, and turns errors of stores into exit codes.
//
// The backends that the program knows are linked in here. The package also finds the lease that a token of the command
// line belongs to, and waits for names in the way of flock(1). It prints nothing.
package store
