// Package audit keeps the audit log of a cluster: who carried out which forced and administrative acts.
//
// # What it promises
//
//   - A record is written in the same batch as the act. So there is a record exactly if the act was carried out, on every
//     member, and also after a restart, after a whole state was sent to a new member, and after a restore.
//   - All members that apply the same entries have equal records. What is recorded depends on the entry and the state alone.
//   - The log has at most [MaxRecords] records of together at most [MaxBytes] bytes. The oldest are dropped.
//   - No record has a password, a hash or a token.
//
// # How it works
//
// [Of] says what a command does, if it is an act, before the command is applied. [Log.Append] writes the record after the
// command has succeeded. A [Log] knows only the sizes of its records; [Read] reads them from the database.
//
// The numbers of records are consecutive, and the index of the log entry orders acts. The time is that of the leader's wall
// clock and orders nothing.
//
// # What it never does
//
// It never reads a clock, and it does not know connections: the server says from where a request came. It records no
// refusal.
package audit
