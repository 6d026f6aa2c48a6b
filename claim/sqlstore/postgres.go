package sqlstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// PostgreSQL is the dialect of PostgreSQL, 12 or later.
var PostgreSQL Dialect = postgresql{}

type postgresql struct{}

func (postgresql) Scheme() string { return "postgres" }

// Types of columns, for arguments whose type is not clear from where they stand.
var postgresqlTypes = []string{"text", "bigint", "uuid", "uuid", "text", "bigint", "bigint", "bigint", "bigint", "bigint", "text", "text", "text", "text", "text"}

// postgresqlRow is a record as texts and numbers, and how long it still lasts by the clock of the database.
const postgresqlRow = `l.name, l.holder, l.token, l.op::text, l.incarnation::text, l.domain, l.written_raw, l.written_boot, l.expiry_raw,
	l.expiry_boot, l.ttl_ns, l.pins, l.card, l.revoked, l.since, l.past,
	(l.ttl_ns - greatest(0, extract(epoch FROM clock_timestamp() - l.written_at) * 1000000000))::bigint`

// A write happens only if the namespace has the mode that the writer believes it has, and if its commit will
// be durable: settings can differ from one connection to the next. Both are reported with how many rows
// were written, so that one statement tells everything.
const (
	postgresqlGuard = `EXISTS (SELECT FROM {namespace} n WHERE n.ns = $1 AND n.mode = $18) AND (%s)`
	postgresqlTells = `SELECT n.mode, current_setting('synchronous_commit'), (SELECT count(*) FROM w)%s FROM {namespace} n WHERE n.ns = $1`
	// It tells others on the channel of the namespace, if something was written.
	postgresqlNotifies = `, (SELECT count(pg_notify(%s, w.name)) FROM w)`
)

func (d postgresql) statements(t tables) statements {
	create := `WITH w AS (INSERT INTO {lease} (ns, name, ` + strings.Join(columns, ", ") + `, written_at) SELECT $1, $2, ` +
		d.arguments() + `, clock_timestamp() WHERE ` + postgresqlGuard + ` ON CONFLICT (ns, name) DO NOTHING RETURNING name) ` + postgresqlTells
	update := `WITH w AS (UPDATE {lease} AS l SET ` + d.assignments() + `, written_at = clock_timestamp() WHERE l.ns = $1 AND l.name = $2 AND l.op = $19::uuid AND (NOT $20::boolean
		OR l.holder = '' OR extract(epoch FROM clock_timestamp() - l.written_at) * 1000000000 > l.ttl_ns) AND ` + postgresqlGuard + ` RETURNING l.name) ` + postgresqlTells
	durable := `current_setting('synchronous_commit') <> 'off' OR $21::boolean`
	notifies := fmt.Sprintf(postgresqlNotifies, "$22::text")
	createDurable := strings.NewReplacer("$21", "$19", "$22", "$20")
	list := `SELECT ` + postgresqlRow + `, n.mode, n.floor FROM {namespace} n LEFT JOIN LATERAL (SELECT * FROM {lease} l
		WHERE l.ns = $1 AND l.name >= $2 AND l.name > $3%s ORDER BY l.name LIMIT $4) l ON true WHERE n.ns = $1 ORDER BY l.name`
	s := statements{
		version: `SELECT coalesce(max(version), 0)::bigint FROM {namespace}`,
		enter:   `INSERT INTO {namespace} (ns, mode, floor, version) VALUES ($1, $2, 0, $3) ON CONFLICT (ns) DO NOTHING RETURNING ns`,
		space:   `SELECT mode, floor FROM {namespace} WHERE ns = $1`,
		raise:   `UPDATE {namespace} SET floor = greatest(floor, $2) WHERE ns = $1 RETURNING floor`,

		get:    `SELECT ` + postgresqlRow + `, n.mode, n.floor FROM {namespace} n LEFT JOIN {lease} l ON l.ns = n.ns AND l.name = $2 WHERE n.ns = $1`,
		list:   fmt.Sprintf(list, ""),
		within: fmt.Sprintf(list, " AND l.name < $5"),

		create:      createDurable.Replace(fmt.Sprintf(create, durable, "")),
		createOwner: createDurable.Replace(fmt.Sprintf(create, durable, notifies)),
		update:      fmt.Sprintf(update, durable, ""),
		updateOwner: fmt.Sprintf(update, durable, notifies),
		batch:       d.batchStatement(),

		sighted: `SELECT raw, boot FROM {sighting} WHERE ns = $1 AND name = $2 AND domain = $3 AND op = $4::uuid`,
		sight: `INSERT INTO {sighting} AS s (ns, name, domain, op, raw, boot) VALUES ($1, $2, $3, $4::uuid, $5, $6) ON CONFLICT (ns, name, domain) DO UPDATE
			SET op = excluded.op, raw = CASE WHEN s.op = excluded.op THEN s.raw ELSE excluded.raw END,
			boot = CASE WHEN s.op = excluded.op THEN s.boot ELSE excluded.boot END RETURNING raw, boot`,
		forget: `DELETE FROM {sighting} s WHERE ns = $1 AND name = $2 AND EXISTS (SELECT FROM {lease} l WHERE l.ns = $1 AND l.name = $2 AND l.op = $3::uuid)`,
		remove: `DELETE FROM {lease} WHERE ns = $1 AND name = $2 AND op = $3::uuid RETURNING name`,

		acknowledged: `SELECT raw, boot FROM {clock} WHERE ns = $1 AND domain = $2`,
		acknowledge: `INSERT INTO {clock} AS c (ns, domain, raw, boot) VALUES ($1, $2, $3, $4) ON CONFLICT (ns, domain) DO UPDATE
			SET raw = greatest(c.raw, excluded.raw), boot = greatest(c.boot, excluded.boot) WHERE c.raw < excluded.raw OR c.boot < excluded.boot`,

		// The lock is the weakest there is. It conflicts with what changes a key, and the token is part of one.
		gate: `SELECT 1 FROM {lease} WHERE ns = $1 AND name = $2 AND token = $3 AND holder = $4 AND incarnation = $5::uuid FOR KEY SHARE`,
		// A change of the owner adds to the sum of the tokens, and of the rows.
		owners: `SELECT count(*) || ' ' || coalesce(sum(token), 0) FROM (SELECT token % 1048576 AS token FROM {lease} WHERE ns = $1) l`,
	}
	s.each(t.fill)
	return s
}

// each changes all statements.
func (s *statements) each(change func(string) string) {
	for _, text := range []*string{&s.version, &s.enter, &s.space, &s.raise, &s.get, &s.list, &s.within, &s.create, &s.createOwner,
		&s.update, &s.updateOwner, &s.batch, &s.sighted, &s.sight, &s.forget, &s.remove, &s.acknowledged, &s.acknowledge, &s.gate, &s.owners} {
		*text = change(*text)
	}
}

// arguments are the places of the columns' values.
func (d postgresql) arguments() string {
	places := make([]string, len(columns))
	for i, kind := range postgresqlTypes {
		places[i] = fmt.Sprintf("$%d::%s", argRecord+i, kind)
	}
	return strings.Join(places, ", ")
}

// assignments set all columns. Setting the token to what it is changes no key: only if it is another one does
// the update wait for the transactions that are gated on it.
func (d postgresql) assignments() string {
	set := make([]string, len(columns))
	for i, kind := range postgresqlTypes {
		set[i] = fmt.Sprintf("%s = $%d::%s", columns[i], argRecord+i, kind)
	}
	return strings.Join(set, ", ")
}

// batchStatement has an array for each argument of a swap that follows the namespace, and the old op.
// It is for swaps that leave the owner as it is.
func (d postgresql) batchStatement() string {
	arrays, names, set := []string{"$2::text[]"}, []string{"name"}, []string{}
	for i, kind := range postgresqlTypes {
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", argRecord+i, kind))
		names = append(names, columns[i])
		set = append(set, fmt.Sprintf("%[1]s = b.%[1]s", columns[i]))
	}
	arrays, names = append(arrays, "$19::uuid[]"), append(names, "old")
	guard := fmt.Sprintf(postgresqlGuard, `current_setting('synchronous_commit') <> 'off' OR $20::boolean`)
	// The rows are locked in one order, so that two batches never wait for each other.
	return `WITH b AS (SELECT * FROM unnest(` + strings.Join(arrays, ", ") + `) AS b (` + strings.Join(names, ", ") + `)),
		mine AS (SELECT l.name FROM {lease} l JOIN b ON l.name = b.name AND l.op = b.old WHERE l.ns = $1 AND ` + guard + ` ORDER BY l.name FOR NO KEY UPDATE OF l),
		w AS (UPDATE {lease} AS l SET ` + strings.Join(set, ", ") + `, written_at = clock_timestamp() FROM mine JOIN b ON b.name = mine.name
		WHERE l.ns = $1 AND l.name = mine.name AND l.op = b.old RETURNING l.name)
		SELECT n.mode, current_setting('synchronous_commit'), w.name FROM {namespace} n LEFT JOIN w ON true WHERE n.ns = $1`
}

// batch makes an array of each column.
func (postgresql) batch(c Config, swaps [][]any) []any {
	args := []any{c.Namespace, column[string](swaps, 0)}
	for i, kind := range postgresqlTypes {
		if kind == "bigint" {
			args = append(args, column[int64](swaps, i+1))
		} else {
			args = append(args, column[string](swaps, i+1))
		}
	}
	return append(args, c.mode(), column[string](swaps, len(columns)+1), c.AcceptLoss)
}

func column[T any](rows [][]any, i int) []T {
	values := make([]T, len(rows))
	for j, row := range rows {
		values[j] = row[i].(T)
	}
	return values
}

func (postgresql) settings(c Config, notify bool) []any {
	if notify {
		return []any{c.AcceptLoss, channel(c)}
	}
	return []any{c.AcceptLoss}
}

// channel is the one on which a namespace tells that owners have changed. Names of channels are short.
func channel(c Config) string {
	sum := sha256.Sum256([]byte(c.Schema + "\x00" + c.Prefix + "\x00" + c.Namespace))
	return "leasekeeper_" + hex.EncodeToString(sum[:8])
}

// Channel is the one on which PostgreSQL notifies of changes of owners in the store's namespace. What it tells
// is the name.
func (s *Store) Channel() string { return channel(s.config) }

// verdict reads what postgresqlTells tells.
func (postgresql) verdict(rows [][]any) verdict {
	if len(rows) == 0 {
		return verdict{}
	}
	r := reader{values: rows[0]}
	v := verdict{told: true, mode: r.text("mode"), commit: r.text("synchronous_commit")}
	v.done = r.number("count") > 0
	return v
}

func (postgresql) batchVerdict(rows [][]any) (names []string, v verdict) {
	for _, row := range rows {
		r := reader{values: row}
		v = verdict{told: true, mode: r.text("mode"), commit: r.text("synchronous_commit")}
		if name := r.text("name"); name != "" {
			names = append(names, name)
		}
	}
	return names, v
}
