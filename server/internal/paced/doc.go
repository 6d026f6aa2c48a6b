// Package paced owns how long a client may take to read an answer over HTTP that has no end of its own.
//
// net/http bounds the time for a whole answer. An answer that is long, or a stream, needs a bound for each part instead: a
// [Writer] gives the client a time for each piece. From the stop of the server on the client has only a short time, so that
// a client that reads nothing does not delay the stop.
//
// The package starts no goroutine, and keeps no bytes.
package paced
