//go:build unix

package postgres

import "github.com/leasekeeper/leasekeeper/backend/internal/storetest"

// What the tests of other stores do as well.
var (
	record  = storetest.Record
	swap    = storetest.Swap
	remove  = storetest.Remove
	says    = storetest.Says
	request = storetest.Request
	take    = storetest.Take
)
