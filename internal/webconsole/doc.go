// Package webconsole serves web pages about the names in a store: their holders, the remaining times, the waiting claims, and the
// latest changes.
//
// # What it promises
//
//   - The store is read by one goroutine, however many pages are open. While no page is open, nothing is read.
//   - The number of requests and of open pages is limited. What is beyond a limit gets status 503 and a text, and a page
//     whose browser does not read its updates is closed.
//   - Every page has the same content as JSON, with ?format=json.
//   - A browser loads nothing from another origin, and runs no script but the embedded one. A name or a card is text on a
//     page, whatever it contains.
//   - Nothing changes the store unless [Config.Write] is set, or [Config.Access] names a user with the right. A change needs
//     a form of this console: a page of another site cannot send one.
//   - With [Config.Access] a page shows only what its user may see, and a change is made by the store with the user's rights.
//   - A figure that the store does not give is a dash.
//
// # How it works
//
// The reader lists the store into a [survey.Survey] again and again, at most for a tenth of the time, and reads the names
// of open pages once a second. What it knows is a [knowledge], which is immutable. A page is a function of a knowledge, a
// query and the time ([build]): it returns data for the JSON, and cells. A template shows the cells, and the updates of an
// open page are the cells that have changed, as server-sent events. So a page and its updates cannot differ.
//
// With [Config.Access] the reader still reads once for all. Each page is made from the part of the knowledge that its user
// sees ([scopes]), and an open page asks for the rights of its user before each update. A browser that logs in gets a
// session, which keeps the user's token.
//
// The members and the audit log of a [Server] are topics: the reader reads them while a page wants them.
//
// # What it never does
//
// It decides nothing about a lease, and keeps nothing on disk. It knows no backend: what a store can do is found by
// [backend.Can].
package webconsole
