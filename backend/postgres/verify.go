package postgres

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// support is the state of a table or a function on which no promise depends.
type support string

const (
	missing support = "missing"
	denied  support = "denied"
	foreign support = "foreign" // not that of this program
	exposed support = "exposed" // other roles can put another in its place
	usable  support = "usable"
)

// verify returns an error if the tables lack something that the promises depend on and that no statement would notice. It
// returns the states of the table of tickets and of the function for looks.
//
// The server resolves a call by the name of the function, also one that was prepared. If the function is dropped while
// programs run, a role that may create functions in the schema can put its own there, and it runs with the rights of the
// program's user. No check in the call prevents that: the server may run an immutable function when it plans the statement.
// So the function is exposed if a role besides the owners of the schema and of the tables may create there. These two can
// replace the tables as well.
func verify(ctx context.Context, db sqlstore.DB, s *sqlstore.Store) (tickets, look support, _ error) {
	c := s.Config()
	name, _, source := s.LookFunction()
	rows, failed := sqlstore.Ask(ctx, db, sqlstore.DefaultPatience, `SELECT c.relpersistence::text, coalesce((SELECT
		CASE WHEN has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT') AND has_table_privilege(t.oid, 'DELETE') THEN 'usable' ELSE 'denied' END
		FROM pg_class t WHERE t.relnamespace = n.oid AND t.relname = $3), 'missing'),
		CASE WHEN EXISTS (SELECT FROM aclexplode(n.nspacl) a WHERE a.privilege_type = 'CREATE' AND a.grantee NOT IN (n.nspowner, c.relowner)) THEN 'exposed' ELSE coalesce((SELECT
		CASE WHEN p.proowner <> c.relowner OR p.prosecdef OR encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') <> $5 THEN 'foreign' WHEN has_function_privilege(p.oid, 'EXECUTE') THEN 'usable' ELSE 'denied' END
		FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proname = $4 AND p.pronargs = 0), 'missing') END
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, c.Schema, c.Prefix+"lease", c.Prefix+"ticket", name, source)
	if failed != nil {
		return "", "", openFailed(failed)
	}
	if len(rows) == 0 {
		return "", "", fmt.Errorf("postgres: %w: there is no table %slease in schema %s: run what %s prints", backend.ErrInvalid, c.Prefix, c.Schema, c.SchemaCommand(sqlstore.PostgreSQL))
	}
	persistence, _ := rows[0][0].(string)
	if persistence != "p" && !c.AcceptLoss {
		return "", "", fmt.Errorf("postgres: %w: the table %slease is not permanent, so a crash empties it: create it with what %s prints", backend.ErrInvalid, c.Prefix, c.SchemaCommand(sqlstore.PostgreSQL))
	}
	table, _ := rows[0][1].(string)
	function, _ := rows[0][2].(string)
	return support(table), support(function), nil
}

// prepareQueues verifies the tables, and decides what the store uses to wait. If an older version created the tables, it
// creates what they lack, as far as the user may. Without the function for looks, and with one that may be another's, the
// store sends the source of a look each time. It returns the state of that function.
func prepareQueues(ctx context.Context, db sqlstore.DB, s *sqlstore.Store) (look support, _ error) {
	tickets, look, err := verify(ctx, db, s)
	if err != nil {
		return "", err
	}
	if tickets == missing && db.Script(ctx, s.TicketSchema()) == nil {
		tickets = usable
	}
	s.UseQueues(tickets == usable)
	if _, create, _ := s.LookFunction(); tickets == usable && look == missing && db.Script(ctx, create) == nil {
		if _, look, err = verify(ctx, db, s); err != nil { // the owner of the tables is perhaps another user
			return "", err
		}
	}
	s.UseLookFunction(look == usable)
	return look, nil
}

// noteSlowLooks logs once, at level debug because leases are safe and a library is silent by default, that the store looks without the function, and why.
func (s *Store) noteSlowLooks(why support) {
	s.slowLooks.Do(func() {
		name, _, _ := s.LookFunction()
		slog.Debug("leasekeeper: processes wait without the function for looks, which costs the server a millisecond more for each look; the page on backends says when a store calls it",
			slog.String("function", s.Config().Schema+"."+name), slog.String("state", string(why)))
	})
}
