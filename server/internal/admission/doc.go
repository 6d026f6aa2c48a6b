// Package admission owns whose a request is, and how much of the server the requests of one client, one connection and
// all clients together may take at the same time.
//
// [IdentityOf] names the client that places are shared by. [Places], [Requests] and [Watchers] count what is under way,
// and refuse what would exceed their bound. The fronts below server take what they count from the server that assembles
// them; a front that needs a bound asks this package and no other front.
//
// It starts no goroutine, never waits, and knows nothing of what a request asks for.
package admission
