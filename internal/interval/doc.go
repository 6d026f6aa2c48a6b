// Package interval owns a tree of intervals of keys, each with a value, which finds the intervals that contain a key.
//
// It promises that its cost grows with the depth of the tree and the number of intervals that contain the key, and not
// with the number of all intervals. It knows nothing of the values, has no goroutines, and draws no random numbers: equal
// calls make equal trees.
package interval
