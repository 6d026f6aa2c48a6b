// Package names owns the commands about names in a store: acquire, renew, release, ls, show, history, watch, transfer,
// pin, unpin, revoke and token. It also owns the commands that maintain databases: move, floor, collect and schema.
//
// The commands work on any backend. If a backend lacks a feature, the command says so, and what to do instead. The
// package decides nothing about leases.
package names
