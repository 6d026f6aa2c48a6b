// Package keepertest opens keepers that the end of a test closes.
//
// It promises that a test fails if its keeper cannot be closed within a time, except that the store may have left the
// outcome of a release unknown: tests break stores on purpose.
//
// It never chooses a store, and is linked into no program.
package keepertest
