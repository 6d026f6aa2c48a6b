package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is what is known of one connection of the pool. Who has the connection has that too.
type session struct {
	count  int  // statements so far, up to unprepared
	direct bool // it reaches the server itself
	plain  bool // nothing may be prepared on it
}

// unprepared is how many statements run before any is prepared. A process that lives for a moment has no use for
// that, and it takes a round trip more for each.
const unprepared = 12

// sessionKey is where a connection keeps its session.
const sessionKey = "leasekeeper"

func sessionOf(conn *pgx.Conn) *session {
	custom := conn.PgConn().CustomData()
	s, ok := custom[sessionKey].(*session)
	if !ok {
		s = &session{}
		custom[sessionKey] = s
	}
	return s
}

// fewTogether is how many names a prepared statement is for at most. The server may keep the plan of a prepared statement
// for as long as the session lasts. One made while the table was small reads the whole table for each name.
const fewTogether = 16

// mode is how a statement with these arguments runs. One for many names is planned each time. Any other is prepared, once on each connection, which saves the server the larger part
// of its work, but only where the same connection leads to the same session of the server each time: behind a
// pooler in transaction mode it does not.
func (d *database) mode(ctx context.Context, conn *pgx.Conn, args []any) pgx.QueryExecMode {
	s := sessionOf(conn)
	switch {
	case !d.prepares || s.plain || slices.ContainsFunc(args, many):
		return pgx.QueryExecModeExec
	case s.direct:
		return pgx.QueryExecModeCacheStatement
	}
	if s.count++; s.count <= unprepared {
		return pgx.QueryExecModeExec
	}
	if direct, _ := d.direct(ctx, conn); direct { // if something is wrong, the statement itself will tell
		return pgx.QueryExecModeCacheStatement
	}
	return pgx.QueryExecModeExec
}

// many reports whether an argument is an array of more than a few names.
func many(arg any) bool {
	names, ok := arg.([]string)
	return ok && len(names) > fewTogether
}

// direct says whether statements can be prepared on a connection. It asks the server if that is not known.
func (d *database) direct(ctx context.Context, conn *pgx.Conn) (bool, error) {
	s := sessionOf(conn)
	if !d.prepares || s.plain || s.direct {
		return d.prepares && s.direct && !s.plain, nil
	}
	direct, err := reachesServer(ctx, conn)
	if err == nil {
		s.direct, s.plain = direct, !direct
	}
	return direct && err == nil, err
}

// reachesServer says whether no pooler stands between. One shows each of its clients a process of its own, and
// runs statements in those of the server.
func reachesServer(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid == conn.PgConn().PID(), err
}

// stale says whether a statement failed, without any effect, because of what was prepared: it is not there, or
// another stands in its place, or the table was changed since.
func stale(err error) bool {
	var p *pgconn.PgError
	if !errors.As(err, &p) {
		return false
	}
	return p.Code == "26000" || p.Code == "42P05" || p.Code == "0A000" && p.Routine == "RevalidateCachedQuery"
}
