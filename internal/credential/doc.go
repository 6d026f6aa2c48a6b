// Package credential attaches the token of a user to the calls of a gRPC client.
//
// # What it promises
//
//   - All calls of a [User] share one token, also those over different connections. It is asked for when a call first needs it,
//     and again when a server refuses it.
//   - A call whose token was refused is repeated with another one: a refused call had no effect. A stream that was opened with a
//     valid token belongs to its user, even when the token expires.
//   - A server without users gets no token, and is asked again if it has users later.
//
// # How it works
//
// A [Token] is what all calls share. [User.Options] are interceptors for a connection, which ask for it by etcd's Authenticate,
// with a name and a password.
//
// # What it never does
//
// It writes no password or token into an error or a log, and starts no goroutine.
package credential
