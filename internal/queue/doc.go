// Package queue decides when a process that waits for a name in a database may claim it.
//
// A store keeps a ticket for each process and name for which the process waits. Tickets have places, and the
// lowest place is the head of the queue. A [Waiter] is the state of one ticket. It takes the result of a look
// at the store (a [View]) and returns what the process should do (a [Step]).
//
// It promises:
//
//   - Only the head claims a name that is free.
//   - A head may claim a free name for [PassAfter] on the observer's clock, or longer if it only asks now and
//     then ([View.Patience]). If it has not, it is passed over: the observer deletes the head's ticket, and the
//     next ticket becomes the head.
//   - A process whose ticket was deleted joins the queue again, at its end.
//
// The queue is advisory, and excludes no process: a claim is a compare-and-swap of the record, and it fails if
// another process was faster, with a ticket or without one. A claim that does not wait ignores the queue.
//
// The package never reads a clock, starts no goroutine and does no I/O: the time comes in as an argument.
package queue
