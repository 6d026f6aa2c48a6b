// Package doctor owns the command doctor: it checks a machine, a server's configuration and a store, and says for each
// finding that is not good what to do.
//
// A check is a pure verdict about facts: the functions named judge… take what was measured and return a [Check], so a test
// gives them each bound. Other functions of the package measure.
//
// The package changes nothing in a store. It looks at a database with [backend.Inspect], which creates no tables, and sends a
// server only requests that read. In the data directory it writes one temporary file, which has no name while it is written
// where the system allows that, and never touches another file. It decides nothing about leases.
package doctor
