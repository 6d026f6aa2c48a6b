package sqlstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"
)

// PostgreSQL is the dialect of PostgreSQL, 12 or later.
var PostgreSQL Dialect = postgresqlDialect{}

type postgresqlDialect struct{}

func (postgresqlDialect) Scheme() string { return "postgres" }

// postgresqlType returns the type of a column, for arguments whose type PostgreSQL cannot infer.
func postgresqlType(column string) string {
	switch column {
	case "op", "incarnation":
		return "uuid"
	case "token", "written_raw", "written_boot", "expiry_raw", "expiry_boot", "ttl_ns":
		return "bigint"
	}
	return "text"
}

// postgresqlRow is a record as texts and numbers, and how long it still lasts by the clock of the database.
const postgresqlRow = `l.name, l.holder, l.token, l.op::text, l.incarnation::text, l.domain, l.written_raw, l.written_boot, l.expiry_raw,
	l.expiry_boot, l.ttl_ns, l.card, l.revoked, l.since, l.pins, {mark}, l.recent, l.past,
	(l.ttl_ns - greatest(0, extract(epoch FROM clock_timestamp() - l.written_at) * 1000000000))::bigint`

// A write happens only if the namespace has the mode that the writer expects, and if its commit will be
// durable: settings can differ from one connection to the next. If the write does not happen, another statement
// finds the reason.
const postgresqlGuard = `EXISTS (SELECT FROM {namespace} n WHERE n.ns = $1 AND n.mode = $%d%s) AND (current_setting('synchronous_commit') <> 'off' OR $%d::boolean)`

// A write that may change the owner reads the row of the namespace anyway, and returns whether any process
// listens.
const (
	postgresqlJoined = `n.ns = $1 AND n.mode = $%d AND (NOT $%d::boolean OR n.floor < $%d) AND (current_setting('synchronous_commit') <> 'off' OR $%d::boolean)`
	postgresqlHeard  = `n.listened_at > clock_timestamp() - interval '1 minute'`
)

// postgresqlGet reads a record, and more.
const postgresqlGet = `SELECT ` + postgresqlRow + `, n.mode, n.floor%s FROM {namespace} n LEFT JOIN {lease} l ON l.ns = n.ns AND l.name = $2 WHERE n.ns = $1`

// ListenEvery is how often a listening store renews the note that it listens, so that writers notify. It is
// much shorter than the validity of the note.
const ListenEvery = 20 * time.Second

func (d postgresqlDialect) statements(t tables) statements {
	list := `SELECT ` + postgresqlRow + `, n.mode, n.floor FROM {namespace} n LEFT JOIN LATERAL (SELECT * FROM {lease} l
		WHERE l.ns = $1 AND l.name >= $2 AND l.name > $3%s ORDER BY l.name LIMIT $4) l ON true WHERE n.ns = $1 ORDER BY l.name`
	s := statements{
		version: `SELECT coalesce(max(version), 0)::bigint, EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass({lease_text}) AND attname = 'mark' AND NOT attisdropped) FROM {namespace}`,
		enter:   `INSERT INTO {namespace} (ns, mode, floor, version) VALUES ($1, $2, 0, $3) ON CONFLICT (ns) DO NOTHING RETURNING ns`,
		space:   `SELECT mode, floor, current_setting('synchronous_commit') FROM {namespace} WHERE ns = $1`,
		raise:   `UPDATE {namespace} SET floor = greatest(floor, $2) WHERE ns = $1 RETURNING floor`,

		get: fmt.Sprintf(postgresqlGet, ""),
		gather: `SELECT ` + postgresqlRow + `, n.mode, n.floor FROM {namespace} n LEFT JOIN LATERAL (SELECT * FROM {lease} l
			WHERE l.ns = $1 AND l.name = ANY($2::text[])) l ON true WHERE n.ns = $1`,
		list:   fmt.Sprintf(list, ""),
		within: fmt.Sprintf(list, " AND l.name < $5"),

		create: d.create(t.columns()),
		update: d.update(t.columns()),
		take:   d.take(""),
		end:    d.end(t.ended(), "", "", ""),
		extend: d.extend(),

		takeNow:   d.end(taken, " AND l.holder = ''", " SKIP LOCKED", ""),
		endNow:    d.end(t.ended(), "", " SKIP LOCKED", ""),
		updateNow: d.end(t.columns(), "", " SKIP LOCKED", ""),

		batch:    d.batchStatement(false),
		alike:    d.batchStatement(true),
		together: d.together(t.columns(), ""),
		// The note need not be durable. And while one transaction that notifies waits for the disk, all others
		// that notify wait for it.
		listen: `UPDATE {namespace} SET listened_at = clock_timestamp() WHERE ns = $1
			AND (listened_at < clock_timestamp() - interval '10 s' OR listened_at > clock_timestamp() + interval '10 s')`,
		notify: `SELECT set_config('synchronous_commit', 'off', true), count(pg_notify($1, name)) FROM unnest($2::text[]) AS name`,

		observed: `SELECT raw, boot FROM {sighting} WHERE ns = $1 AND name = $2 AND domain = $3 AND op = $4::uuid`,
		observe: `INSERT INTO {sighting} AS s (ns, name, domain, op, raw, boot) VALUES ($1, $2, $3, $4::uuid, $5, $6) ON CONFLICT (ns, name, domain) DO UPDATE
			SET op = excluded.op, raw = CASE WHEN s.op = excluded.op THEN s.raw ELSE excluded.raw END,
			boot = CASE WHEN s.op = excluded.op THEN s.boot ELSE excluded.boot END RETURNING raw, boot`,
		sweep:  `DELETE FROM {sighting} s WHERE ns = $1 AND name >= $2 AND name < $3 AND NOT EXISTS (SELECT FROM {lease} l WHERE l.ns = s.ns AND l.name = s.name AND l.op = s.op)`,
		forget: `DELETE FROM {sighting} s WHERE ns = $1 AND name = $2 AND EXISTS (SELECT FROM {lease} l WHERE l.ns = $1 AND l.name = $2 AND l.op = $3::uuid)`,
		remove: `DELETE FROM {lease} WHERE ns = $1 AND name = $2 AND op = $3::uuid RETURNING name`,

		acknowledged: `SELECT raw, boot FROM {clock} WHERE ns = $1 AND domain = $2`,
		acknowledge: `INSERT INTO {clock} AS c (ns, domain, raw, boot) VALUES ($1, $2, $3, $4) ON CONFLICT (ns, domain) DO UPDATE
			SET raw = greatest(c.raw, excluded.raw), boot = greatest(c.boot, excluded.boot) WHERE c.raw < excluded.raw OR c.boot < excluded.boot`,

		// The lock is the weakest there is. It conflicts with the strongest, for which see update, and not with
		// an update.
		gate: `SELECT 1 FROM {lease} WHERE ns = $1 AND name = $2 AND token = $3 AND holder = $4 AND incarnation = $5::uuid FOR KEY SHARE`,
		// A change of the owner adds to the sum of the tokens, and to the number of rows.
		owners: `SELECT count(*) || ' ' || coalesce(sum(token), 0) FROM (SELECT token % 1048576 AS token FROM {lease} WHERE ns = $1) l`,
	}
	s.queue = d.queueing(t)
	s.each(t.fill)
	return s
}

// each changes all statements.
func (s *statements) each(change func(string) string) {
	for _, text := range []*string{&s.version, &s.enter, &s.space, &s.raise, &s.get, &s.gather, &s.list, &s.within, &s.create, &s.update,
		&s.take, &s.end, &s.extend, &s.takeNow, &s.endNow, &s.updateNow, &s.batch, &s.alike, &s.together, &s.listen, &s.notify, &s.observed, &s.observe, &s.sweep, &s.forget, &s.remove, &s.acknowledged, &s.acknowledge, &s.gate, &s.owners,
		&s.queue.table, &s.queue.get, &s.queue.take, &s.queue.takeNow, &s.queue.together, &s.queue.join, &s.queue.joinWith, &s.queue.leave, &s.queue.leaveBefore, &s.queue.prefer, &s.queue.pass,
		&s.queue.sweep, &s.queue.empty, &s.queue.look, &s.queue.lookCall, &s.queue.ask, &s.queue.standings, &s.queue.door} {
		*text = change(*text)
	}
}

func (d postgresqlDialect) create(columns []string) string {
	at := placesAfter(columns)
	return `INSERT INTO {lease} (ns, name, ` + strings.Join(columns, ", ") + `, written_at) SELECT $1, $2, ` + d.arguments(columns) +
		`, clock_timestamp() WHERE ` + fmt.Sprintf(postgresqlGuard, at.mode, "", at.old) + ` ON CONFLICT (ns, name) DO NOTHING RETURNING 1`
}

// take returns the statement that writes only over a vacant record, for which no transaction is gated and which
// has expired by any clock. further is one more condition, or empty.
func (d postgresqlDialect) take(further string) string {
	at := placesAfter(taken)
	return `UPDATE {lease} AS l SET ` + d.assignments(taken) + `, written_at = clock_timestamp() FROM {namespace} n WHERE l.ns = $1 AND l.name = $2 AND l.op = ` +
		fmt.Sprintf(`$%d::uuid AND l.holder = '' AND $%d::boolean IS NOT NULL AND `, at.old, at.ended) +
		fmt.Sprintf(postgresqlJoined, at.mode, at.above, token, at.settings) + further + ` RETURNING ` + postgresqlHeard
}

// end returns the statement that ends a tenure. It writes only after it has waited for the transactions that
// are gated on the tenure: it first takes the strongest lock on the row, and holds it together with its write.
// All indexed columns stay unchanged, so the server rewrites the row on its page and nothing else.
func (d postgresqlDialect) end(columns []string, vacant, locked, further string) string {
	at := placesAfter(columns)
	return `UPDATE {lease} AS l SET ` + d.assignments(columns) + `, written_at = clock_timestamp() FROM {namespace} n WHERE l.ctid = (SELECT l.ctid FROM {lease} l WHERE l.ns = $1
		AND l.name = $2 AND l.op = ` + d.judged(at) + vacant + ` FOR UPDATE` + locked + `) AND ` + fmt.Sprintf(postgresqlJoined, at.mode, at.above, token, at.settings) + further + ` RETURNING ` + postgresqlHeard
}

// judged compares the op and, if requested, the clock of the database.
func (postgresqlDialect) judged(at places) string {
	return fmt.Sprintf(`$%d::uuid AND (NOT $%d::boolean OR l.holder = '' OR extract(epoch FROM clock_timestamp() - l.written_at) * 1000000000 > l.ttl_ns)`, at.old, at.ended)
}

// update returns the statement for all other writes. It takes that lock only if the write ends a tenure after
// all.
func (d postgresqlDialect) update(columns []string) string {
	at := placesAfter(columns)
	return fmt.Sprintf(`WITH locked AS (SELECT FROM {lease} l WHERE l.ns = $1 AND l.name = $2 AND l.op = $%d::uuid FOR UPDATE)
		UPDATE {lease} AS l SET `, at.old) + d.assignments(columns) + `, written_at = clock_timestamp() FROM {namespace} n WHERE l.ns = $1 AND l.name = $2 AND l.op = ` +
		d.judged(at) + ` AND ` + fmt.Sprintf(postgresqlJoined, at.mode, at.above, token, at.settings) +
		fmt.Sprintf(` AND CASE WHEN l.holder = '' OR l.token = $%d THEN true ELSE EXISTS (SELECT FROM locked) END RETURNING `, token) + postgresqlHeard
}

func (d postgresqlDialect) extend() string {
	at := placesAfter(extended)
	return `UPDATE {lease} AS l SET ` + d.assignments(extended) + `, written_at = clock_timestamp() WHERE l.ns = $1 AND l.name = $2 AND l.op = ` +
		fmt.Sprintf(`$%d::uuid AND `, at.old) + fmt.Sprintf(postgresqlGuard, at.mode, "", at.ended) + ` RETURNING 1`
}

// arguments returns the places of the columns' values.
func (postgresqlDialect) arguments(columns []string) string {
	places := make([]string, len(columns))
	for i, column := range columns {
		places[i] = fmt.Sprintf("$%d::%s", argRecord+i, postgresqlType(column))
	}
	return strings.Join(places, ", ")
}

// assignments sets columns to the arguments from argRecord on.
func (d postgresqlDialect) assignments(columns []string) string {
	set := make([]string, len(columns))
	for i, column := range columns {
		set[i] = fmt.Sprintf("%s = $%d::%s", column, argRecord+i, postgresqlType(column))
	}
	return strings.Join(set, ", ")
}

// array returns an argument with values of a column. Ids are sent as texts, in arrays too.
func (postgresqlDialect) array(place int, column string) string {
	if kind := postgresqlType(column); kind != "uuid" {
		return fmt.Sprintf("$%d::%s[]", place, kind)
	}
	return fmt.Sprintf("$%d::text[]::uuid[]", place)
}

func (postgresqlDialect) names(names []string) any { return names }

func column[T any](rows [][]any, i int) []T {
	values := make([]T, len(rows))
	for j, row := range rows {
		values[j] = row[i].(T)
	}
	return values
}

// mostTogether has no bound: other writers can write at the same time, and each statement is a round trip.
func (postgresqlDialect) mostTogether() int { return math.MaxInt }

func (postgresqlDialect) writeSettings(c Config) []any { return []any{c.AcceptLoss} }

// channelOf returns the channel on which a namespace notifies of changes of owners. Names of channels must be
// short.
func channelOf(c Config) string {
	sum := sha256.Sum256([]byte(c.Schema + "\x00" + c.Prefix + "\x00" + c.Namespace))
	return "leasekeeper_" + hex.EncodeToString(sum[:8])
}

// Channel returns the channel on which PostgreSQL notifies of changes of owners in the store's namespace. The
// payload is the name.
func (s *Store) Channel() string { return channelOf(s.config) }

// ListeningStatement returns the statement that records that a process listens on the channel, and its arguments.
func (s *Store) ListeningStatement() (statement string, args []any) {
	return s.statements.listen, []any{s.config.Namespace}
}

// NotifyStatement returns the statement that notifies of names on the channel, and its arguments. An empty name stands for
// any. Its transaction is not durable, and need not be.
func (s *Store) NotifyStatement(names []string) (statement string, args []any) {
	return s.statements.notify, []any{s.Channel(), names}
}
