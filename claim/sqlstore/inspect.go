package sqlstore

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// TablesVersion returns the version of the tables in a database, and 0 if there are none. It creates nothing.
func TablesVersion(ctx context.Context, db DB, d Dialect, c Config) (int, error) {
	if err := c.complete(); err != nil {
		return 0, err
	}
	statement := d.statements(tables{schema: c.Schema, prefix: c.Prefix}).version
	rows, f := Ask(ctx, db, c.Patience, statement)
	switch {
	case f != nil && f.Missing:
		return 0, nil
	case f != nil:
		return 0, fmt.Errorf("%s: read the version of the tables: %w: %w", d.Scheme(), f.HarmlessKind(), f.detail())
	}
	r := reader{values: rows[0]}
	version := r.number("version")
	if r.wrong != nil {
		return 0, fmt.Errorf("%s: the version of the tables: %w: %v", d.Scheme(), backend.ErrCorrupt, r.wrong)
	}
	return int(version), nil
}
