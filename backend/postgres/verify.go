package postgres

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// support is the state of a table or a function on which no promise depends.
type support string

const (
	missing support = "missing"
	denied  support = "denied"
	foreign support = "foreign" // not that of this program
	usable  support = "usable"
)

// verify returns an error if the tables lack something that the promises depend on and that no statement would notice. It
// returns the states of the table of tickets and of the function for looks.
func verify(ctx context.Context, db sqlstore.DB, s *sqlstore.Store) (tickets, look support, _ error) {
	c := s.Config()
	_, source := s.LookFunction()
	rows, failed := sqlstore.Ask(ctx, db, sqlstore.DefaultPatience, `SELECT c.relpersistence::text, coalesce((SELECT
		CASE WHEN has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT') AND has_table_privilege(t.oid, 'DELETE') THEN 'usable' ELSE 'denied' END
		FROM pg_class t WHERE t.relnamespace = n.oid AND t.relname = $3), 'missing'), coalesce((SELECT
		CASE WHEN p.proowner <> c.relowner OR p.prosecdef OR encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') <> $5 THEN 'foreign' WHEN has_function_privilege(p.oid, 'EXECUTE') THEN 'usable' ELSE 'denied' END
		FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proname = $4 AND p.pronargs = 0), 'missing')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, c.Schema, c.Prefix+"lease", c.Prefix+"ticket", c.Prefix+"look", source)
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
// store sends the source of a look each time.
func prepareQueues(ctx context.Context, db sqlstore.DB, s *sqlstore.Store) error {
	tickets, look, err := verify(ctx, db, s)
	if err != nil {
		return err
	}
	if tickets == missing && db.Script(ctx, s.TicketSchema()) == nil {
		tickets = usable
	}
	s.UseQueues(tickets == usable)
	if create, _ := s.LookFunction(); tickets == usable && look == missing && db.Script(ctx, create) == nil {
		if _, look, err = verify(ctx, db, s); err != nil { // the owner of the tables is perhaps another user
			return err
		}
	}
	s.UseLookFunction(look == usable)
	return nil
}
