// Package lifetime owns how long the work of a server lasts: its goroutines, and the contexts of its long streams. A
// stream can end with the server, with the loss of the leader, or with one leadership.
//
// A [Lifetime] belongs to one server. [Lifetime.Stream] derives the context of a long stream; the cause of that context
// says why the stream ended. [Lifetime.Go] starts a goroutine that [Lifetime.Wait] waits for.
//
// It does not observe the member itself. The server reports the loss of a leader, and the function given to [New]
// returns the leader.
package lifetime
