// Package claim makes leases on any store that can conditionally write one record: a table, a collection.
package claim
