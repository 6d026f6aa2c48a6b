// Package authority is a certificate authority for tests.
//
// An [Authority] issues certificates that are valid for an hour, for servers and clients on this machine. It is made in memory,
// and writes files only where it is told to. Only tests use it.
package authority
