// Package deadlineguard runs the second process of `leasekeeper run`, which ends the command before its lease ends.
//
// # How it works
//
// The guard is this same program under another name. Most of the time that a program of this size needs to start goes
// into the initialization of its packages, and the guard needs few of them. So this package runs the guard while it is
// itself initialized, and then ends the process: all packages that are initialized later cost the guard nothing, neither
// time nor memory. Go initializes packages in the order of their import paths, each after those that it imports. This
// package therefore imports little. If it came late in the order, the guard would start later and work all the same.
//
// If the guard fails, main reports its error.
//
// # What it never does
//
// In any other process of the program it does nothing. It prints nothing, and decides nothing about the command:
// internal/supervise does.
package deadlineguard
