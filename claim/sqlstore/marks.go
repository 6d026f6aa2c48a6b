package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
)

// Tables from before there were marks lack the column of marks. A store adds it when it is opened. If it cannot, because
// the user lacks the right or a transaction has the table locked, it works as before without marks.

// postgresqlMarks adds the column. The server rewrites no row for that.
const postgresqlMarks = `ALTER TABLE {lease} ADD COLUMN IF NOT EXISTS mark text NOT NULL DEFAULT '';
`

// The column needs a lock for which other statements wait, and which waits for gated transactions. So it waits only for
// a moment: the holders' renewals are more urgent.
func (postgresqlDialect) addMarks(t tables) string {
	return t.fill(`SELECT set_config('lock_timeout', '200ms', true);
` + postgresqlMarks)
}

func (sqliteDialect) addMarks(t tables) string {
	return t.fill(`ALTER TABLE {lease} ADD COLUMN mark TEXT NOT NULL DEFAULT ''`)
}

// prepareMarks makes the store use the column of marks, which it adds unless the table has it.
func (s *Store) prepareMarks(ctx context.Context, present bool) {
	if !present {
		present = s.script(ctx, s.dialect.addMarks(s.tables)) == nil
	}
	if !present { // another process may have added it meanwhile
		_, now, err := s.schemaVersion(ctx)
		present = err == nil && now
	}
	if present {
		s.tables.marks = true
		s.statements = s.dialect.statements(s.tables)
	}
}

// script runs statements, and again for as long as the store is patient if the database is only busy.
func (s *Store) script(ctx context.Context, statements string) error {
	limit := time.Now().Add(s.config.Patience)
	for tries := 0; ; tries++ {
		err := s.db.Script(ctx, statements)
		if err == nil || !failureOf(err).Again || time.Now().After(limit) || !rest(ctx, backoff.Doubled(firstRest, longestRest, tries)) {
			return err
		}
	}
}

// CanMark implements [claim.Marker].
func (s *Store) CanMark() error {
	if s.tables.marks {
		return nil
	}
	return &backend.UnsupportedError{Backend: s.Scheme(), What: backend.Marks, Instead: fmt.Sprintf(
		"the table %slease had no column mark when the store was opened: open the store as the owner of the table while no transaction is open for long, or have the owner run what %s prints, and restart this program",
		s.config.Prefix, s.config.SchemaCommand(s.dialect))}
}

// checkMarkless returns an error if records may have marks that this store does not read: it removes none of them then.
// A record that was read before this call has no mark, or another op by now, because the first mark comes after the
// column.
func (s *Store) checkMarkless(ctx context.Context) error {
	if s.tables.marks {
		return nil
	}
	_, present, err := s.schemaVersion(ctx)
	if err == nil && present {
		err = s.CanMark()
	}
	return err
}
