// Package guard checks the rights of the users on whose behalf a server serves requests.
//
// # What it promises
//
//   - While access is enabled, a request of etcd's API is refused with the error that etcd gives it, in etcd's order.
//   - Data that was read leaves the member only if the policy permits it that is in force after the reading. So nothing is
//     answered by a right that was withdrawn before the data was written.
//   - A change is checked here, so that refused ones do not fill the log, and again when it is applied.
//   - A method that this package does not know is refused.
//   - Refusals for want of a right or a user are logged, at most one a second.
//   - What another member says about a user counts only if no one but a member can say it.
//
// # How it works
//
// [Guard.Caller] finds out who the user of a request is: by what the member says that forwards it, by the token, or by the
// certificate, in this order. [Guard.Method] decides by the method alone, where etcd does: operations on the cluster need
// the role root. [Keys] is a member of the front of etcd's API that checks the keys and leases of each call, and [Names] is
// that of the front of names.
//
// A member that lags may refuse by a policy that is no longer in force. So before it refuses, it confirms that it is up to
// date, unless the request is serializable.
//
// # What it never does
//
// It keeps no rights: the policy is the member's (package internal/access). It checks no password.
package guard
