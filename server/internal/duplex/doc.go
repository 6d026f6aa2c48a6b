// Package duplex owns the state that the two goroutines of a stream of renewals share: the one that reads and the one
// that answers. It counts the open requests, and records why reading has ended.
//
// A [Flow] belongs to one stream. It neither reads nor sends; its two sides do.
package duplex
