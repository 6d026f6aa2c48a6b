// Package histogram owns the counting of durations by size, for metrics.
//
// The bounds are fixed: each is twice the one before. It takes durations as arguments, reads no clock, and is not safe
// for concurrent use.
package histogram
