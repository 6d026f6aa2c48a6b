//go:build unix

package postgres

import "github.com/leasekeeper/leasekeeper/backend/internal/storetest"

// These helpers are shared with the tests of other stores.
var (
	record  = storetest.Record
	swap    = storetest.Swap
	remove  = storetest.Remove
	says    = storetest.Says
	request = storetest.Request
	take    = storetest.Take
)
