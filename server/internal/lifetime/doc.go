// Package lifetime owns how long the work of a server lasts: its goroutines, and the contexts of streams that end with the
// server, with the loss of a leader, or with one leadership.
//
// A [Lifetime] belongs to one server. [Lifetime.Stream] derives the context of a long stream, whose cause says why the
// stream ended. [Lifetime.Go] starts a goroutine that [Lifetime.Wait] waits for.
//
// It asks nobody how the member is: the server that assembles the fronts reports the loss of a leader, and the function
// given to [New] says who leads.
package lifetime
