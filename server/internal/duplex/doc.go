// Package duplex owns what the goroutine that reads a stream of renewals and the goroutine that answers it share: how many
// requests are open, and why no more will be read.
//
// A [Flow] belongs to one stream. It neither reads nor sends: its two sides do.
package duplex
