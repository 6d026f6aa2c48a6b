package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// otherDriver runs statements on a database of database/sql whose driver is not pgx's, such as lib/pq or pgdriver. It has no
// connections of its own, and prepares nothing.
type otherDriver struct {
	*lifetime
	db    *sql.DB
	slots poolSlots
}

// errOtherDriver is the reason why a store gets no notifications and has no session that waits.
var errOtherDriver = errors.New("the driver of this database is not pgx's: its connections pass no notifications on")

func newOtherDriver(db *sql.DB) *otherDriver {
	return &otherDriver{lifetime: newLifetime(), db: db, slots: newPoolSlots(db.Stats().MaxOpenConnections)}
}

// Query implements [sqlstore.DB].
func (d *otherDriver) Query(ctx context.Context, statement string, args ...any) (all [][]any, _ error) {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = driverValue(arg)
	}
	err := d.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, statement, values...)
		if err != nil {
			return err
		}
		all, err = scanAll(rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Script implements [sqlstore.DB].
func (d *otherDriver) Script(ctx context.Context, statements string) error {
	return d.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, statements)
		return err
	})
}

// run calls do with a connection. The methods of sql.DB must not run a statement: they run it again after
// driver.ErrBadConn, which lib/pq also returns for statements that the server may have carried out.
func (d *otherDriver) run(ctx context.Context, do func(context.Context, *sql.Conn) error) error {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	if claim.IsRenewal(ctx) {
		leave, err := d.slots.enter(ctx)
		if err != nil {
			return acquireFailure(err)
		}
		defer leave()
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return acquireFailure(err)
	}
	defer conn.Close()
	if err := do(ctx, conn); err != nil {
		return failure(err)
	}
	return nil
}

// scanAll returns all rows of a statement, after its commit. Some drivers give text as bytes.
func scanAll(rows *sql.Rows) ([][]any, error) {
	all, err := sqlstore.ScanAll(rows)
	for _, values := range all {
		for i, value := range values {
			if text, ok := value.([]byte); ok {
				values[i] = string(text)
			}
		}
	}
	return all, err
}

// elementEscaper escapes an element of an array between quotes.
var elementEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoteElement(text string) string { return `"` + elementEscaper.Replace(text) + `"` }

// driverValue returns an argument as every driver takes it: a number or an array is its text. pgdriver writes the smallest
// number in a way that the server refuses.
func driverValue(arg any) any {
	switch v := arg.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case []string:
		return arrayText(v, quoteElement)
	case []*string:
		return arrayText(v, func(text *string) string {
			if text == nil {
				return "NULL"
			}
			return quoteElement(*text)
		})
	case []int64:
		return arrayText(v, func(n int64) string { return strconv.FormatInt(n, 10) })
	case []bool:
		return arrayText(v, strconv.FormatBool)
	}
	return arg
}

// arrayText returns the text of an array as PostgreSQL reads it.
func arrayText[T any](all []T, element func(T) string) string {
	texts := make([]string, len(all))
	for i, value := range all {
		texts[i] = element(value)
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// dial implements runner.
func (d *otherDriver) dial(context.Context) (*pgx.Conn, error) { return nil, errOtherDriver }

// shut implements runner.
func (d *otherDriver) shut() {}
