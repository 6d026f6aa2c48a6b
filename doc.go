// Package leasekeeper holds leases on names.
package leasekeeper
