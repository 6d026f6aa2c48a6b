// Package waitlist decides which caller of a keeper acts for all that wait for one name, and in which order they get it.
//
// A keeper has at most one place in a store's queue for a name and a priority, however many callers wait for it. The
// caller that makes that claim, and waits for its turn at the store, is an actor. The others wait in the keeper: those of
// a higher priority come first, and those of one priority first in, first out.
//
// It promises:
//
//   - A priority has at most one actor for a name. While the keeper itself holds the name, no caller becomes an actor,
//     except by inheriting a place.
//   - A caller becomes an actor only when all of its priority that joined before it have left, and without inheriting a
//     place only when the actors of all higher priorities have places. So a free name goes to the highest priority.
//   - If callers wait and the keeper does not hold the name, the first of them is an actor.
//   - A caller that leaves disturbs no other. If it was an actor, the next caller inherits its place at the store, provided
//     that both have the same [Terms]. Otherwise the next caller claims a place of its own.
//
// [Lists] is pure: it starts no goroutine and wakes no caller, but returns the caller that must be woken. It does not know
// what a place is. It is not safe for concurrent use.
package waitlist
