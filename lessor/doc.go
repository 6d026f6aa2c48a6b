// Package lessor owns leases with a TTL and the items attached to them.
package lessor
