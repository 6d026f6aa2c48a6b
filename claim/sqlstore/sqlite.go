package sqlstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SQLite is the dialect of SQLite, 3.35 or later.
var SQLite Dialect = sqliteDialect{}

type sqliteDialect struct{}

func (sqliteDialect) Scheme() string { return "sqlite" }

// SQLiteWritten ends each statement of SQLite whose rows say nothing but that it has written that many records. The number
// of rows that the statement has changed says the same.
const SQLiteWritten = ` RETURNING 1`

// sqliteIntegers are the columns that hold numbers.
var sqliteIntegers = []string{"token", "written_raw", "written_boot", "expiry_raw", "expiry_boot", "ttl_ns"}

func (d sqliteDialect) statements(t tables) statements {
	row := strings.Replace("l.name, l."+strings.Join(columns, ", l.")+", 0, n.mode, n.floor", "l.mark", "{mark}", 1)
	all := t.columns()
	create := `INSERT INTO {lease} (ns, name, ` + strings.Join(all, ", ") + `) SELECT ?1, ?2, ` + strings.Join(d.places(all), ", ") +
		` WHERE ` + fmt.Sprintf(sqliteGuard, placesAfter(all).mode, "") + ` ON CONFLICT (ns, name) DO NOTHING` + SQLiteWritten
	at := placesAfter(extended)
	extend := `UPDATE {lease} SET ` + strings.Join(d.assignments(extended), ", ") + ` WHERE ns = ?1 AND name = ?2 AND op = ` +
		fmt.Sprintf(`?%d AND `+sqliteGuard, at.old, at.mode, "") + SQLiteWritten
	list := `SELECT ` + row + ` FROM {namespace} n LEFT JOIN (SELECT * FROM {lease}
		WHERE ns = ?1 AND name >= ?2 AND name > ?3%s ORDER BY name LIMIT ?4) l ON true WHERE n.ns = ?1 ORDER BY l.name`
	s := statements{
		version: `SELECT coalesce(max(version), 0), EXISTS (SELECT 1 FROM pragma_table_info({lease_bare}) WHERE name = 'mark') FROM {namespace}`,
		enter:   `INSERT INTO {namespace} (ns, mode, floor, version) VALUES (?1, ?2, 0, ?3) ON CONFLICT (ns) DO NOTHING RETURNING ns`,
		space:   `SELECT mode, floor, 'on' FROM {namespace} WHERE ns = ?1`,
		raise:   `UPDATE {namespace} SET floor = max(floor, ?2) WHERE ns = ?1 RETURNING floor`,

		get: `SELECT ` + row + ` FROM {namespace} n LEFT JOIN {lease} l ON l.ns = n.ns AND l.name = ?2 WHERE n.ns = ?1`,
		gather: `SELECT ` + row + ` FROM {namespace} n LEFT JOIN (SELECT l.* FROM json_each(?2) AS s CROSS JOIN {lease} AS l
			WHERE l.ns = ?1 AND l.name = s.value) l ON true WHERE n.ns = ?1`,
		list:   fmt.Sprintf(list, ""),
		within: fmt.Sprintf(list, " AND name < ?5"),

		create: create,
		update: d.update(all),
		take:   d.update(taken),
		end:    d.update(t.ended()),
		extend: extend,
		batch:  d.batchStatement(),

		observed: `SELECT raw, boot FROM {sighting} WHERE ns = ?1 AND name = ?2 AND domain = ?3 AND op = ?4`,
		observe: `INSERT INTO {sighting} (ns, name, domain, op, raw, boot) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (ns, name, domain) DO UPDATE
			SET op = excluded.op, raw = CASE WHEN op = excluded.op THEN raw ELSE excluded.raw END,
			boot = CASE WHEN op = excluded.op THEN boot ELSE excluded.boot END RETURNING raw, boot`,
		sweep:  `DELETE FROM {sighting} AS s WHERE ns = ?1 AND name >= ?2 AND name < ?3 AND NOT EXISTS (SELECT 1 FROM {lease} l WHERE l.ns = s.ns AND l.name = s.name AND l.op = s.op)`,
		forget: `DELETE FROM {sighting} WHERE ns = ?1 AND name = ?2 AND EXISTS (SELECT 1 FROM {lease} l WHERE l.ns = ?1 AND l.name = ?2 AND l.op = ?3)`,
		remove: `DELETE FROM {lease} WHERE ns = ?1 AND name = ?2 AND op = ?3 RETURNING name`,

		acknowledged: `SELECT raw, boot FROM {clock} WHERE ns = ?1 AND domain = ?2`,
		acknowledge: `INSERT INTO {clock} (ns, domain, raw, boot) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (ns, domain) DO UPDATE
			SET raw = max(raw, excluded.raw), boot = max(boot, excluded.boot) WHERE raw < excluded.raw OR boot < excluded.boot`,

		// It changes nothing, and keeps others from writing until the transaction ends.
		gate: `UPDATE {lease} SET op = op WHERE ns = ?1 AND name = ?2 AND token = ?3 AND holder = ?4 AND incarnation = ?5`,
		// A change of the owner adds to the sum of the tokens, and to the number of rows.
		owners: `SELECT count(*) || ' ' || coalesce(sum(token), 0) FROM (SELECT token % 1048576 AS token FROM {lease} WHERE ns = ?1) l`,
	}
	s.each(t.fill)
	return s
}

// sqliteGuard is the condition on the namespace that each write has.
const sqliteGuard = `EXISTS (SELECT 1 FROM {namespace} WHERE ns = ?1 AND mode = ?%d%s)`

func (d sqliteDialect) update(columns []string) string {
	at := placesAfter(columns)
	floor := fmt.Sprintf(" AND (NOT ?%d OR floor < ?%d)", at.above, token)
	return `UPDATE {lease} SET ` + strings.Join(d.assignments(columns), ", ") + ` WHERE ns = ?1 AND name = ?2 AND op = ` +
		fmt.Sprintf(`?%d AND NOT ?%d AND `+sqliteGuard, at.old, at.ended, at.mode, floor) + SQLiteWritten
}

func (sqliteDialect) places(columns []string) []string {
	places := make([]string, len(columns))
	for i := range columns {
		places[i] = "?" + strconv.Itoa(argRecord+i)
	}
	return places
}

// assignments sets columns to the arguments from argRecord on.
func (sqliteDialect) assignments(columns []string) []string {
	set := make([]string, len(columns))
	for i, column := range columns {
		set[i] = column + " = ?" + strconv.Itoa(argRecord+i)
	}
	return set
}

// batchStatement goes through the swaps, which are in JSON, and finds the row of each by its key. CROSS JOIN
// keeps SQLite from going through all swaps for each row.
func (d sqliteDialect) batchStatement() string {
	part := func(i int) string { return fmt.Sprintf("json_extract(s.value, '$[%d]')", i) }
	values, set := []string{"l.rowid AS id"}, []string{}
	for i, column := range extended {
		value := part(i + 1) // after the name
		if slices.Contains(sqliteIntegers, column) {
			value = "CAST(" + value + " AS INTEGER)"
		}
		values, set = append(values, value+" AS "+column), append(set, column+" = b."+column)
	}
	return `WITH b AS MATERIALIZED (SELECT ` + strings.Join(values, ", ") + ` FROM json_each(?2) AS s CROSS JOIN {lease} AS l
		WHERE l.ns = ?1 AND l.name = ` + part(0) + ` AND l.op = ` + part(len(extended)+1) + ` AND EXISTS (SELECT 1 FROM {namespace} WHERE ns = ?1 AND mode = ?3))
		UPDATE {lease} AS l SET ` + strings.Join(set, ", ") + ` FROM b WHERE l.rowid = b.id RETURNING name`
}

func (sqliteDialect) writeSettings(Config) []any { return nil }

// mostTogether makes other writers wait for some ten milliseconds at most. One writes at a time, and a waiting
// writer gets its turn between two statements.
func (sqliteDialect) mostTogether() int { return 2000 }

// batch returns one JSON text of all swaps. It writes numbers as texts, since they may be larger than JSON
// numbers reliably are.
func (sqliteDialect) batch(c Config, s *statements, swaps [][]any) (statement string, args []any) {
	all := make([][]string, len(swaps))
	for i, swap := range swaps {
		for _, value := range swap {
			all[i] = append(all[i], fmt.Sprint(value))
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic("sqlstore: strings are not JSON: " + err.Error())
	}
	return s.batch, []any{c.Namespace, string(text), c.mode()}
}

// names returns one JSON text of all names.
func (sqliteDialect) names(names []string) any {
	text, err := json.Marshal(names)
	if err != nil {
		panic("sqlstore: strings are not JSON: " + err.Error())
	}
	return string(text)
}

// togetherArgs is not used: SQLite's store commits waiting writes together.
func (sqliteDialect) togetherArgs(Config, []string, [][]any) []any { return nil }

// batchVerdict does not know why nothing was written, if so.
func (sqliteDialect) batchVerdict(rows, _ [][]any) (names []string, v verdict) {
	for _, row := range rows {
		r := reader{values: row}
		names = append(names, r.text("name"))
	}
	return names, v
}
