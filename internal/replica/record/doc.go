// Package record owns what a member's records look like on its disk: the keys under which they stand, their bytes, and
// the buffer in which records wait that change with every claim.
//
// It never repairs a record that it does not understand: a lease server that invents its past would break promises that
// it made.
package record
