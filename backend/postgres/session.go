package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is what the store knows of one connection of the pool. Only the goroutine that has acquired the connection uses
// it.
type session struct {
	count  int  // statements so far, up to unprepared
	direct bool // the connection reaches the server itself
	plain  bool // no statement may be prepared on the connection
}

// unprepared is how many statements run on a connection before any is prepared. Preparing costs one more round trip for
// each statement, which does not pay in a process that soon ends. To open a store takes four statements, and one tenure of
// a name another four.
const unprepared = 8

// planOnce makes the server plan a prepared statement once and not for each of its first executions, in a session that
// reachesServer has found to be this process's own. All statements find their rows by a key, whatever the arguments are.
const planOnce = "SET plan_cache_mode = force_generic_plan"

// sessionKey is the key of the session in the custom data of a connection.
const sessionKey = "leasekeeper"

// sessionOf returns the session of a connection.
func sessionOf(conn *pgx.Conn) *session {
	custom := conn.PgConn().CustomData()
	s, ok := custom[sessionKey].(*session)
	if !ok {
		s = &session{}
		custom[sessionKey] = s
	}
	return s
}

// maxPrepared is the largest number of names for which a statement is prepared. The server may keep the plan of a prepared
// statement for as long as the session lasts, and a plan made while the table was small reads the whole table for each
// name.
const maxPrepared = 64 // as many as claims and releases share

// mode returns how to execute a statement with these arguments. A statement for many names is planned each time. Any other
// is prepared once on each connection, which saves the server most of its work. That needs a connection that always leads
// to the same session of the server, which it does not behind a pooler in transaction mode.
func (d *database) mode(ctx context.Context, conn *pgx.Conn, args []any) pgx.QueryExecMode {
	s := sessionOf(conn)
	switch {
	case !d.prepares || s.plain || slices.ContainsFunc(args, manyNames):
		return pgx.QueryExecModeExec
	case s.direct:
		return pgx.QueryExecModeCacheStatement
	}
	if s.count++; s.count <= unprepared {
		return pgx.QueryExecModeExec
	}
	if direct, _ := d.direct(ctx, conn); direct { // on an error, the statement itself will fail too
		return pgx.QueryExecModeCacheStatement
	}
	return pgx.QueryExecModeExec
}

// manyNames reports whether an argument is an array of more than maxPrepared names.
func manyNames(arg any) bool {
	names, ok := arg.([]string)
	return ok && len(names) > maxPrepared
}

// direct reports whether statements can be prepared on a connection. It asks the server if the session does not know.
func (d *database) direct(ctx context.Context, conn *pgx.Conn) (bool, error) {
	s := sessionOf(conn)
	if !d.prepares || s.plain || s.direct {
		return d.prepares && s.direct && !s.plain, nil
	}
	direct, err := reachesServer(ctx, conn)
	if err == nil && direct && d.shares != "" {
		_, err = conn.Exec(ctx, planOnce, pgx.QueryExecModeSimpleProtocol)
	}
	if err == nil {
		s.direct, s.plain = direct, !direct
	}
	return direct && err == nil, err
}

// reachesServer reports whether no pooler is between this process and the server. A pooler gives each client a process ID
// of its own, while statements run in processes of the server.
func reachesServer(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid == conn.PgConn().PID(), err
}

// stale reports whether a statement failed without effect because its prepared statement no longer fits: it does not exist,
// its name belongs to another, or the table has changed since.
func stale(err error) bool {
	var p *pgconn.PgError
	if !errors.As(err, &p) {
		return false
	}
	return p.Code == "26000" || p.Code == "42P05" || p.Code == "0A000" && p.Routine == "RevalidateCachedQuery"
}
