package sqlstore

import (
	"encoding/json"
	"fmt"
	"strings"
)

// batchStatement has an array for each argument of extend that follows the namespace. If alike is true, only the
// columns in varying have arrays, and the others have one value for all rows. Last is the number of the swaps.
//
// A keeper of many leases loses all of them if the server joins the arrays with the table in a way whose work
// grows with the square of their number. The server chooses that way from statistics that may be old, so the
// statement leaves it no choice:
//
//   - LIMIT makes the server look up the row of each name by its key.
//   - It does so in the order of the names, so that two batches rarely wait for each other.
//   - It finds the rows again by their place.
//
// It locks no row before it writes it. If another transaction has changed the row meanwhile, the op is another one, and the
// row is not written.
//
// It returns one row. The names are in it only if some were not written, because to send them costs as much as to
// write them.
func (d postgresqlDialect) batchStatement(alike bool) string {
	arrays, names, set, carried := []string{"$2::text[]"}, []string{"name"}, []string{}, []string{}
	for i, column := range extended {
		if alike && !varies(column) {
			set = append(set, fmt.Sprintf("%s = $%d::%s", column, argRecord+i, postgresqlType(column)))
			continue
		}
		arrays, names = append(arrays, d.array(argRecord+i, column)), append(names, column)
		carried = append(carried, "b."+column)
		set = append(set, fmt.Sprintf("%[1]s = mine.%[1]s", column))
	}
	at := placesAfter(extended)
	arrays, names, carried = append(arrays, d.array(at.old, "op")), append(names, "old"), append(carried, "b.old")
	guard := fmt.Sprintf(postgresqlGuard, at.mode, "", at.ended)
	return `WITH b AS (SELECT * FROM unnest(` + strings.Join(arrays, ", ") + `) AS b (` + strings.Join(names, ", ") + `) ORDER BY name COLLATE "C"),
		mine AS MATERIALIZED (SELECT l.place, ` + strings.Join(carried, ", ") + ` FROM (SELECT WHERE ` + guard + `) g CROSS JOIN b CROSS JOIN LATERAL
			(SELECT l.ctid AS place FROM {lease} l WHERE l.ns = $1 AND l.name = b.name AND l.op = b.old LIMIT 1) l),
		w AS (UPDATE {lease} AS l SET ` + strings.Join(set, ", ") + `, written_at = clock_timestamp() FROM mine WHERE l.ctid = mine.place AND l.op = mine.old RETURNING l.name),
		done AS (SELECT count(*) AS n, array_agg(name) AS names FROM w)
		SELECT n.mode, current_setting('synchronous_commit'), CASE WHEN done.n < $` + fmt.Sprint(at.above) + `::bigint THEN coalesce(to_json(done.names)::text, '[]') END FROM {namespace} n, done WHERE n.ns = $1`
}

// varies reports whether a column of an extension has another value in each row. The others have not if one client
// extends the leases with one reading of its clocks, unless it took one over with a longer promise.
func varies(column string) bool { return column == "op" }

// batch makes an array of each column that varies.
func (d postgresqlDialect) batch(c Config, s *statements, swaps [][]any) (statement string, args []any) {
	statement = s.alike
	for _, swap := range swaps {
		for i, name := range extended {
			if !varies(name) && swap[i+1] != swaps[0][i+1] {
				statement = s.batch
			}
		}
	}
	args = []any{c.Namespace, column[string](swaps, 0)}
	for i, name := range extended {
		switch {
		case statement == s.alike && !varies(name):
			args = append(args, swaps[0][i+1])
		case postgresqlType(name) == "bigint":
			args = append(args, column[int64](swaps, i+1))
		default:
			args = append(args, column[string](swaps, i+1))
		}
	}
	return statement, append(args, c.mode(), column[string](swaps, len(extended)+1), c.AcceptLoss, int64(len(swaps)))
}

func (postgresqlDialect) batchVerdict(rows, swaps [][]any) (names []string, v verdict) {
	if len(rows) == 0 {
		return nil, v
	}
	r := reader{values: rows[0]}
	v = verdict{known: true, mode: r.text("mode"), commit: r.text("synchronous_commit")}
	switch some := r.next().(type) {
	case nil:
		names = column[string](swaps, 0)
	case string:
		if json.Unmarshal([]byte(some), &names) != nil {
			names = nil
		}
	}
	return names, v
}
