// Package record says what the records of a member look like on its disk.
//
// It never repairs a record that it does not understand: a lease server that invents its past would break promises that
// it made.
package record
