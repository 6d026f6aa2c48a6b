// Package store opens the store of a command, and turns errors of stores into exit codes.
//
// It links in the backends that the program supports. It also finds the lease that belongs to a token on the command
// line, and waits for names as flock(1) does. It prints nothing.
package store
