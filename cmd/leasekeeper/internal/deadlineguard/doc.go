// Package deadlineguard runs the second process of `leasekeeper run`, which ends the command before its lease ends.
//
// # How it works
//
// The guard is this same program under another name. Most of the time that a program of this size needs to start goes
// into the initialization of its packages, and the guard needs few of them. So this package runs the guard while it is
// itself initialized, and then ends the process. Packages that are initialized later cost the guard neither time nor
// memory.
//
// Of all packages whose imports are initialized, Go takes the one with the first import path. So this package must not
// import, even indirectly, a package that could be initialized early but has a late path: os/exec, path/filepath and
// runtime/debug are such. TestGuardInitializesFewPackages notices it. The guard would then start later, and work all the
// same.
//
// If the guard fails, main reports its error.
//
// # What it never does
//
// In any other process of the program it does nothing. It prints nothing, and decides nothing about the command:
// internal/supervise does.
package deadlineguard
