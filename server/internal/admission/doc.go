// Package admission owns the identity of the client of a request. It also owns the bounds on what the requests of one
// client, of one connection, and of all clients together may take of the server.
//
// [IdentityOf] returns the identity by which clients share places. [Places], [Requests] and [Watchers] count open work,
// and refuse work above their bounds. The server makes them and hands them to its fronts.
//
// It starts no goroutine, never waits, and knows nothing about what a request does.
package admission
