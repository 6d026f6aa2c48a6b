// Package waitlist decides which caller of a keeper acts for all that wait for one name, and in which order they get it.
//
// A keeper has at most one place in a store's queue for a name, however many callers wait for it. The caller that makes
// that claim, and waits for its turn at the store, is the actor. The others wait in the keeper, first in, first out.
//
// It promises:
//
//   - A name has at most one actor. While the keeper itself holds the name, no caller becomes the actor.
//   - A caller becomes the actor only when all that joined before it have left.
//   - If callers wait and the keeper does not hold the name, one of them is the actor.
//   - A caller that leaves disturbs no other. If it was the actor, the next caller inherits its place at the store, provided
//     that both have the same [Terms]. Otherwise the next caller claims a place of its own.
//
// [Lists] is pure: it starts no goroutine and wakes no caller, but returns the caller that must be woken. It does not know
// what a place is. It is not safe for concurrent use.
package waitlist
