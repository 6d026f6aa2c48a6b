// Package quota counts the leases and claims of each user, and decides whether a user may have one more.
//
// # What it promises
//
//   - The counts are those of the leases that exist. They follow from the leases and their owners alone, so all members that
//     have applied the same commands count alike, and a restarted member counts as before.
//   - A user that has more than its quota, because the quota was lowered, keeps what it has.
//
// # How it works
//
// The caller reports each lease with the user that owns it ([Ledger.Own]), and each end of a lease ([Ledger.End]). A lease
// belongs to the user that was granted it, or that claimed a name by it. Leases without an owner are not in the ledger, so
// they take no memory in it: while access is not enabled, no lease has an owner.
//
// # What it never does
//
// It never changes a policy, ends a lease, or decides about rights.
package quota
