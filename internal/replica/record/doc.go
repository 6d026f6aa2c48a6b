// Package record owns what a member's records look like on its disk: their keys, their bytes, and the buffer for records
// that change with every claim.
//
// [Identify] founds a new database, [Refound] makes the database of a snapshot that of a new cluster, and [Instants]
// translates between the clocks of this process and those of earlier ones.
//
// It never repairs a record that it does not understand: a lease server that invents its past would break promises that
// it made.
package record
