package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// The kinds of locks of other programs: goose's locks for migrations, in its table or of a session, and the table of ShedLock.
const (
	gooseKind    = "goose"
	shedLockKind = "ShedLock"
)

const (
	// foreignPatience bounds one reading of locks of other programs.
	foreignPatience = 3 * time.Second
	// gooseSession is the key of the advisory lock that goose's session locker takes by default.
	gooseSession = "4097083626"
)

var _ claim.ForeignLister = (*Store)(nil)

// foreignTables finds the tables of other programs in all schemas that the user may read. A table whose columns differ from
// those that the program creates is not one of them. The third column says that times are without a time zone.
const foreignTables = `SELECT n.nspname::text, c.relname::text, bool_or(format_type(a.atttypid, NULL) = 'timestamp without time zone')
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relname IN ('goose_lock', 'shedlock') AND c.relkind IN ('r', 'p')
AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
GROUP BY n.nspname, c.relname
HAVING string_agg(a.attname || ' ' || replace(format_type(a.atttypid, NULL), 'character varying', 'text'), ', ' ORDER BY a.attname COLLATE "C") IN (
'lease_expires_at timestamp with time zone, lock_id bigint, locked boolean, locked_at timestamp with time zone, locked_by text, updated_at timestamp with time zone',
'lock_until timestamp with time zone, locked_at timestamp with time zone, locked_by text, name text',
'lock_until timestamp without time zone, locked_at timestamp without time zone, locked_by text, name text')
ORDER BY n.nspname, c.relname
LIMIT 16`

// The statements that read locks return a name, a holder, the time at which it was taken, the TTL and what is left of it, in
// milliseconds. The last %s of each is the table.
const (
	gooseRows = `SELECT lock_id::text, coalesce(locked_by, ''), (extract(epoch FROM locked_at) * 1000)::bigint,
(extract(epoch FROM lease_expires_at - updated_at) * 1000)::bigint, (extract(epoch FROM lease_expires_at - clock_timestamp()) * 1000)::bigint
FROM %[2]s WHERE locked AND lease_expires_at >= clock_timestamp() ORDER BY lock_id LIMIT %[1]d`
	shedRows = `SELECT name::text, locked_by::text, (extract(epoch FROM locked_at%[3]s) * 1000)::bigint,
(extract(epoch FROM lock_until - locked_at) * 1000)::bigint, (extract(epoch FROM lock_until%[3]s - clock_timestamp()) * 1000)::bigint
FROM %[2]s WHERE lock_until%[3]s > clock_timestamp() ORDER BY name COLLATE "C" LIMIT %[1]d`
	// inUTC is the time zone that ShedLock uses where a column has none.
	inUTC = " AT TIME ZONE 'UTC'"
	// gooseSessions returns the process of the session, what is known of it, and how many other sessions wait.
	gooseSessions = `SELECT l.pid::bigint, coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''),
(SELECT count(*) FROM pg_locks w WHERE NOT w.granted AND w.locktype = 'advisory' AND w.database = l.database AND w.classid = 0 AND w.objid = l.objid AND w.objsubid = 1)
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.classid = 0 AND l.objid = '` + gooseSession + `'::oid AND l.objsubid = 1 LIMIT 1`
)

// ForeignKinds implements [claim.ForeignLister].
func (s *Store) ForeignKinds() []string { return []string{gooseKind, shedLockKind} }

// ForeignLocks implements [claim.ForeignLister]. It takes no lock, and reads at most 16 tables. Times in columns without a time
// zone are taken for UTC.
func (s *Store) ForeignLocks(ctx context.Context, limit int) (locks []backend.ForeignLock, more bool, err error) {
	if limit <= 0 {
		return nil, false, fmt.Errorf("postgres: %w: a list of up to %d locks: ask for at least one", backend.ErrInvalid, limit)
	}
	ctx, cancel := context.WithTimeout(ctx, foreignPatience)
	defer cancel()
	if locks, err = s.gooseSession(ctx); err != nil {
		return nil, false, err
	}
	tables, err := s.foreign(ctx, foreignTables)
	if err != nil {
		return nil, false, err
	}
	for _, t := range tables {
		found, err := s.foreignRows(ctx, t, limit+1)
		if err != nil {
			return nil, false, err
		}
		locks = append(locks, found...)
	}
	slices.SortStableFunc(locks, func(a, b backend.ForeignLock) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	more = len(locks) > limit
	return locks[:min(limit, len(locks))], more, nil
}

// foreign runs a statement that only reads.
func (s *Store) foreign(ctx context.Context, statement string) ([][]any, error) {
	rows, f := sqlstore.Ask(ctx, s.db, foreignPatience, statement)
	if f == nil {
		return rows, nil
	}
	return nil, fmt.Errorf("postgres: list locks of other programs: %w: %w", f.HarmlessKind(), f)
}

// gooseSession returns the advisory lock of goose, if a session holds it.
func (s *Store) gooseSession(ctx context.Context) ([]backend.ForeignLock, error) {
	rows, err := s.foreign(ctx, gooseSessions)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	pid, _ := rows[0][0].(int64)
	program, _ := rows[0][1].(string)
	address, _ := rows[0][2].(string)
	waiting, _ := rows[0][3].(int64)
	l := backend.ForeignLock{
		Kind: gooseKind, Name: "advisory lock " + gooseSession, Holder: fmt.Sprintf("session of process %d", pid), Text: program,
		Remaining: -1, Waiting: int(waiting),
	}
	if address != "" {
		l.Text = strings.TrimSpace(program + " from " + address)
	}
	return []backend.ForeignLock{l}, nil
}

// foreignRows reads the locks in a row of [foreignTables].
func (s *Store) foreignRows(ctx context.Context, table []any, limit int) ([]backend.ForeignLock, error) {
	schema, _ := table[0].(string)
	name, _ := table[1].(string)
	zoneless, _ := table[2].(bool)
	kind, statement, zone := shedLockKind, shedRows, ""
	if name == "goose_lock" {
		kind, statement = gooseKind, gooseRows
	} else if zoneless {
		zone = inUTC
	}
	if kind == gooseKind {
		statement = fmt.Sprintf(statement, limit, pgx.Identifier{schema, name}.Sanitize())
	} else {
		statement = fmt.Sprintf(statement, limit, pgx.Identifier{schema, name}.Sanitize(), zone)
	}
	rows, err := s.foreign(ctx, statement)
	if err != nil {
		return nil, err
	}
	locks := make([]backend.ForeignLock, 0, len(rows))
	for _, row := range rows {
		l := backend.ForeignLock{Kind: kind, Text: "table " + schema + "." + name, TTL: max(0, milliseconds(row[3])), Remaining: max(0, milliseconds(row[4])), Waiting: -1}
		l.Name, _ = row[0].(string)
		l.Holder, _ = row[1].(string)
		if since, ok := row[2].(int64); ok {
			l.Since = time.UnixMilli(since).UTC()
		}
		locks = append(locks, l)
	}
	return locks, nil
}

// milliseconds returns a duration that a statement returned in milliseconds; 0 for NULL.
func milliseconds(v any) time.Duration {
	n, _ := v.(int64)
	return time.Duration(n) * time.Millisecond
}
