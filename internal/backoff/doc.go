// Package backoff computes how long to pause: before another attempt, or between two looks at a store.
//
// A pause doubles with each failure up to a limit ([Doubled]), and is drawn from an interval ([Between]), so that
// programs which fail together do not try again together.
//
// The package decides nothing else. It does not wait, does not count failures, and draws nothing: the random bits
// come in as an argument.
package backoff
