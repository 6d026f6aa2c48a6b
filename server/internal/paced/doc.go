// Package paced owns how long a client may take to read an answer over HTTP that has no end of its own.
//
// net/http bounds the time for a whole answer. An answer that is long, or a stream, needs a bound for each part instead: a
// [Writer] gives the client a time for each piece. From the stop of the server on the time is short, so that
// a client that reads nothing does not delay the stop.
//
// It keeps no bytes, and bounds no answer as a whole.
package paced
