//go:build !race

package storetest

// manyLeases is what one keeper can be expected to have.
const manyLeases = 10_000
