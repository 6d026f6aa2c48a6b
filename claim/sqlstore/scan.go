package sqlstore

import (
	"database/sql"
	"errors"
)

// ScanAll returns all rows of a statement of database/sql, with their values as the driver gives them, and closes them. A
// statement that writes is committed then.
func ScanAll(rows *sql.Rows) (all [][]any, err error) {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values, places := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		if err := rows.Scan(places...); err != nil {
			return nil, err
		}
		all = append(all, values)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}
