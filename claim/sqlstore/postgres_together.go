package sqlstore

import (
	"fmt"
	"strings"
)

// The arguments of the statement for several swaps: three values for all, and then an array for each of these.
const (
	togetherNamespace = 1 + iota
	togetherMode
	togetherSettings
	togetherArrays // the names, the columns, and togetherConditions
)

// togetherConditions are the arrays behind those of the columns. vacant says that a swap writes only over a vacant
// record; the others are those of [claim.Swap].
var togetherConditions = []struct{ name, kind string }{{"old", "uuid"}, {"ended", "boolean"}, {"above", "boolean"}, {"vacant", "boolean"}, {"alone", "boolean"}}

// together returns the statement that does several swaps, each as endNow, updateNow or takeNow would. It waits for no
// lock: it skips rows that another transaction has locked. It locks rows in the order of their names. As in
// batchStatement, the server looks up each row by its key and finds it again by its place. A null leaves the column
// of its row as it is. An array of domains with a single value is for all swaps. columns are
// those of the table, and alone is the condition of a swap with Alone, or empty.
func (d postgresqlDialect) together(columns []string, alone string) string {
	arrays, names, set := []string{fmt.Sprintf("(SELECT $%d::text[])", togetherArrays)}, []string{"name"}, []string{}
	for i, column := range columns {
		arrays = append(arrays, d.array(togetherArrays+1+i, column))
		names = append(names, column)
		value := "b." + column
		switch {
		case i >= len(taken):
			value = "coalesce(" + value + ", l." + column + ")"
		case column == "domain":
			value = fmt.Sprintf("coalesce(%s, (%s)[1])", value, d.array(togetherArrays+1+i, column))
		}
		set = append(set, column+" = "+value)
	}
	for i, c := range togetherConditions {
		array := fmt.Sprintf("$%d::%s[]", togetherArrays+1+len(columns)+i, c.kind)
		if c.kind == "uuid" {
			array = d.array(togetherArrays+1+len(columns)+i, "op")
		}
		arrays, names = append(arrays, array), append(names, c.name)
	}
	return `UPDATE {lease} AS l SET ` + strings.Join(set, ", ") + `, written_at = clock_timestamp()
		FROM {namespace} n, unnest(` + strings.Join(arrays, ", ") + `) AS b (` + strings.Join(names, ", ") + `),
			LATERAL (SELECT l.ctid AS place FROM {lease} l WHERE l.ns = $1 AND l.name = b.name AND l.op = b.old AND (NOT b.vacant OR l.holder = '')
				AND (NOT b.ended OR l.holder = '' OR extract(epoch FROM clock_timestamp() - l.written_at) * 1000000000 > l.ttl_ns)
				AND (NOT b.above OR n.floor < b.token)` + alone + ` LIMIT 1 FOR UPDATE SKIP LOCKED) mine
		WHERE n.ns = $1 AND n.mode = $2 AND (current_setting('synchronous_commit') <> 'off' OR $3::boolean) AND l.ctid = mine.place
		RETURNING l.name, ` + postgresqlHeard
}

// togetherArgs makes an array of each value of the swaps. The values of a swap are its name, its columns, of which those
// after taken may be nil, and its conditions.
func (postgresqlDialect) togetherArgs(c Config, columns []string, swaps [][]any) []any {
	args := []any{c.Namespace, c.mode(), c.AcceptLoss, column[string](swaps, 0)}
	for i, name := range columns {
		switch {
		case i >= len(taken):
			args = append(args, optional(swaps, i+1))
		case name == "domain": // nearly always that of this process
			args = append(args, once(column[string](swaps, i+1)))
		case postgresqlType(name) == "bigint":
			args = append(args, column[int64](swaps, i+1))
		default:
			args = append(args, column[string](swaps, i+1))
		}
	}
	for i, c := range togetherConditions {
		if c.kind == "boolean" {
			args = append(args, column[bool](swaps, 1+len(columns)+i))
		} else {
			args = append(args, column[string](swaps, 1+len(columns)+i))
		}
	}
	return args
}

// once returns the first value alone if all are equal.
func once(values []string) []string {
	for _, v := range values {
		if v != values[0] {
			return values
		}
	}
	return values[:1]
}

// optional returns one column of texts, each of which may be nil.
func optional(rows [][]any, i int) []*string {
	values := make([]*string, len(rows))
	for j, row := range rows {
		if text, ok := row[i].(string); ok {
			values[j] = &text
		}
	}
	return values
}

// member returns the values of a swap for the statement that does several: its name, its columns, nil for those that it
// leaves as they are, and its conditions.
func (s *statements) member(t tables, w *ownerWrite) []any {
	columns := t.columns()
	written, vacant, alone := columns, false, false
	switch w.statement {
	case s.endNow:
		written = t.ended()
	case s.takeNow:
		written, vacant = taken, true
	case s.queue.takeNow:
		written, vacant, alone = taken, true, true
	}
	at := placesAfter(written)
	values := make([]any, 0, 1+len(columns)+len(togetherConditions))
	values = append(values, w.name)
	values = append(values, w.args[argRecord-1:at.mode-1]...)
	values = append(values, make([]any, len(columns)-len(written))...)
	return append(values, w.args[at.old-1], w.args[at.ended-1], w.args[at.above-1], vacant, alone)
}
