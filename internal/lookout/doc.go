// Package lookout makes a look at the queues of a store that has no other way than to ask again and again.
//
// The process at the head of a queue asks more often than the others, since all of them wait for it.
package lookout
