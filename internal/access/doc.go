// Package access decides what each user of a cluster may do: users with passwords and roles, roles with ranges of keys, and
// rights over names.
//
// # What it promises
//
//   - Users, roles and verdicts about keys follow etcd's rules, including the order in which errors are found.
//   - A change that fails changes nothing. A change that succeeds raises the auth revision, except for [Enable], as in etcd, and
//     [SetQuota], which withdraws no right.
//     So while access is enabled, a verdict can be kept for as long as the revision stays the same.
//   - All members that apply the same commands have equal policies.
//   - A user with the role root may do everything, and while access is enabled nothing takes that role from the user root.
//   - A verdict never depends on whether the thing exists that the caller wants to use.
//
// # How it works
//
// A [Policy] is immutable: [Policy.Apply] returns the next one, which shares what did not change. So any goroutine may keep
// a policy and decide by it. [Published] is the place from which goroutines load the current policy.
//
// A caller is a user together with the auth revision at which the server identified that user ([Caller]). A caller of an
// earlier revision gets [ErrOldRevision]; etcd's clients authenticate again and repeat the request. So a member decides by
// no rights that were withdrawn before. Two checks are needed: before the request, and after the answer was read, because
// the policy may have changed in between. Changes are checked when they are applied.
//
// Etcd's permissions are ranges of keys. The rights over names ([Rights]) are records of this package alongside the role,
// because etcd's enumeration of permissions has no place for them. They apply to all names that begin with a prefix.
//
// Quotas are set for each user, and not for each role: what they limit is counted for each user, and a user of several roles
// would need a rule which of their quotas applies. This package says what a user may have ([Policy.Most]), and counts nothing.
//
// One deviation: if a role has several permissions that begin with the same key, etcd may add a second permission for the same
// range instead of replacing the first. This package always replaces it.
//
// # Bounds
//
// All users and roles together take at most [MaxSize] bytes, as [Policy.Size] counts them.
//
// # What it never does
//
// It never reads a clock, hashes or compares a password, makes a token, writes anything or sends anything. It does not know
// the log, the keyspace or the leases.
package access
