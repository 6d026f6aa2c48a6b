// Package login owns the proof of who a client is: passwords, and the tokens that clients receive for them.
//
// # What it promises
//
// [Passwords] hashes and checks passwords with bcrypt. At most a bounded number of processors work on passwords at a time,
// and clients take turns. An unknown user takes as long as a wrong password.
//
// A [Tokens] accepts a token only if a member of this cluster, or a holder of the private key, has made it for that user,
// and only until it expires. A token of a user whose password has changed since, or who was removed, is refused.
//
// # How it works
//
// Simple tokens are etcd's: a random text and the index of a log entry. The entry tells every member the digest of the text
// and the user ([Logins]), so each member knows the token, and no disk has it. A token expires when the member that checks it
// has not seen it for the TTL. A member that restarts forgets tokens whose entries it does not apply again; clients then
// authenticate again.
//
// JWT are etcd's too: the claims username, revision and exp. The type of the key and the sign method of the option fix the
// algorithm, so a token cannot choose one. The key files are read again when they change, and the file of public keys may
// hold several keys. So keys can be replaced without refusing a client.
//
// # What it never does
//
// It decides nothing about rights. It trusts wall time in one place: a JSON Web Token expires by the clock of the member that
// checks it, so a clock that is set back extends such tokens. The wall clock does not matter for simple tokens. The validity of
// certificates, for which the wall clock counts too, is a matter of crypto/tls.
package login
