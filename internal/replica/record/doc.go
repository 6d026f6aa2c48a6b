// Package record owns the records on a member's disk: their keys, their bytes, and the write-behind buffer for
// records that change with every claim.
//
// It never repairs a record that it cannot decode. A lease server that guesses its past would break its promises.
package record
