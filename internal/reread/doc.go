// Package reread tells a program when it has to read files again, because they have changed.
//
// It promises that a change is noticed at the first question after it, if the last look at the files is an interval ago. Files
// that could not be used are read again at each look, and an error counts as new only once.
//
// How it works: a [Files] compares the times, sizes and identities of the files with those at its last look. It has no
// goroutine.
//
// It never reads a file: its callers do, and keep what they have read.
package reread
