package sqlstore_test

import (
	"fmt"
	"strings"

	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

func ExampleSchema() {
	text, err := sqlstore.Schema(sqlstore.SQLite, "")
	if err != nil {
		fmt.Println(err)
	}
	first, _, _ := strings.Cut(text, "\n\n")
	fmt.Println(first)
	// Output:
	// CREATE TABLE IF NOT EXISTS "leasekeeper_namespace" (
	// 	-- Namespaces: leases of different namespaces are independent of each other.
	// 	ns TEXT NOT NULL,
	// 	mode TEXT NOT NULL CHECK (mode = 'writer'), -- whose clocks judge when leases end: those of the writer of a record, or that of the store; never change it
	// 	floor INTEGER NOT NULL CHECK (typeof(floor) = 'integer'), -- all later tokens are above it; raise it after a restore of the database
	// 	version INTEGER NOT NULL CHECK (typeof(version) = 'integer'), -- of these tables
	// 	PRIMARY KEY (ns)
	// );
}
