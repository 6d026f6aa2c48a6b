// Package permit decides whether a caller may have a command applied, and whether a user may have a lease renewed.
//
// # What it promises
//
//   - Commands on keys and leases follow etcd's rules, including that a caller who attaches a key to a lease, renews the lease
//     or revokes it must be allowed to write all keys that are attached to it.
//   - The lease of a claim belongs to the user that claimed: that user, as long as it has the right to hold the name, and root
//     may use it, and nobody else.
//   - Nothing is decided while access is not enabled.
//
// # How it works
//
// [Check] looks at every part of a command, and asks a policy of package access. What it needs to know of leases comes in as
// [Leases]. [Renewals] remembers one user of each lease that may renew it under the present policy, so that a further renewal by
// that user does not look at each attached key. It remembers no refusal.
//
// # What it never does
//
// It never identifies a user, reads a clock or keeps a policy, and it decides nothing about commands that a leader's lessor
// has decided.
package permit
