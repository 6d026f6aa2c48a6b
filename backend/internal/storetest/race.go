//go:build race

package storetest

// manyLeases is smaller with the race detector, which makes everything ten times slower.
const manyLeases = 300
