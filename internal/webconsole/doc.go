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
//   - Nothing changes the store unless [Config.Write] is set. A change needs a form of this console: a page of another
//     site cannot send one.
//   - A figure that the store does not give is a dash.
//
// # How it works
//
// The reader lists the store into a [survey.Survey] again and again, at most for a tenth of the time, and reads the names
// of open pages once a second. What it knows is a [knowledge], which is immutable. A page is a function of a knowledge, a
// query and the time ([build]): it returns data for the JSON, and cells. A template shows the cells, and the updates of an
// open page are the cells that have changed, as server-sent events. So a page and its updates cannot differ.
//
// # What it never does
//
// It decides nothing about a lease, and keeps nothing on disk. It knows no backend: what a store can do is found by
// [backend.Can].
package webconsole
