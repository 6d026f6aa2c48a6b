//go:build race

package storetest

// manyLeases are fewer with the race detector, with which everything takes ten times as long.
const manyLeases = 300
