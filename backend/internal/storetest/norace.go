//go:build !race

package storetest

// manyLeases is how many leases one keeper has to manage.
const manyLeases = 10_000
