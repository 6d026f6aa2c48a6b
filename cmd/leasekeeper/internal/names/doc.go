// Package names owns the commands about names in a store: acquire, renew, release, ls, show, history, watch, transfer,
// pin, unpin, revoke and token, and the upkeep of databases: move, floor, collect and schema.
//
// The commands work on any backend. One that a backend does not offer says so, and what to do instead. The package
// decides nothing about leases.
package names
