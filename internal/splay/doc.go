// Package splay keeps a name taken for a while after the work under it has ended, for the adapters of schedulers.
//
// A scheduler whose clock is late by less than that then finds the name taken, and does not do the work a second time.
//
// It promises that the wait ends early only when the lease is lost. It never renews or releases a lease: the keeper does.
package splay
