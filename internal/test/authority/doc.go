// Package authority is a certificate authority for tests.
//
// An [Authority] issues certificates that are valid for an hour, for servers and clients on this machine. It writes
// no files: it returns what they would have. Only tests use it.
package authority
