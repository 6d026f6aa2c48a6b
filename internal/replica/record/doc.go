// Package record owns the records on a member's disk: their keys, their bytes, and the write-behind buffer for
// records that change with every claim.
//
// [Identify] founds a new database, [Refound] makes the database of a snapshot that of a new cluster, and [Instants]
// translates between the clocks of this process and those of earlier ones.
//
// It never repairs a record that it cannot decode. A lease server that guesses its past would break its promises.
package record
