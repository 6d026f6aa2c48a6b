package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// acquireFailure returns the failure of getting a connection.
func acquireFailure(err error) *sqlstore.Failure {
	f := &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: err}
	// pgxpool hides puddle's error value, and database/sql has none.
	if strings.Contains(err.Error(), "closed pool") || strings.Contains(err.Error(), "sql: database is closed") {
		f.Kind = backend.ErrClosed
	}
	if p := serverError(err); p != nil {
		switch {
		case strings.HasPrefix(p.Code, "28"):
			f.Advice = "the server rejects this user or its password: check the URL"
		case p.Code == "3D000":
			f.Kind, f.Advice = backend.ErrInvalid, "the database does not exist: create it, or name another"
		case p.Code == "53300":
			f.Advice = "the server has no free connection: use fewer, or a pooler"
		}
	}
	return f
}

// failure returns what the error of a statement means for its outcome.
func failure(err error) *sqlstore.Failure {
	if f, known := errors.AsType[*sqlstore.Failure](err); known {
		return f
	}
	f := &sqlstore.Failure{Kind: backend.ErrUnknownOutcome, Err: err}
	if pgconn.SafeToRetry(err) {
		f.Kind = backend.ErrUnavailable
	} else if p := serverError(err); p != nil {
		setKind(f, p)
	}
	return f
}

// serverError returns the error that the server sent, or nil.
func serverError(err error) *pgconn.PgError {
	var p *pgconn.PgError
	if errors.As(err, &p) {
		return p
	}
	if p = reported(err); p != nil && !knownSeverity(p.Severity) && onlyOfStatements(p.Code) {
		p.Severity = "ERROR"
	}
	return p
}

// reported returns the error of the server behind an error of another driver than pgx's, or nil. lib/pq's error has method
// Get for the fields of the server's message, and pgdriver's has method Field. Errors of further drivers may have the state
// alone.
func reported(err error) *pgconn.PgError {
	var get interface{ Get(field byte) string }
	if errors.As(err, &get) {
		return &pgconn.PgError{Code: get.Get('C'), Severity: get.Get('S'), Message: err.Error()}
	}
	var field interface{ Field(field byte) string }
	if errors.As(err, &field) {
		return &pgconn.PgError{Code: field.Field('C'), Severity: field.Field('S'), SeverityUnlocalized: field.Field('V'), Message: err.Error()}
	}
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return &pgconn.PgError{Code: state.SQLState(), Message: err.Error()}
	}
	return nil
}

// knownSeverity reports whether a severity is in the untranslated form. lib/pq passes only the form in the server's
// language on.
func knownSeverity(severity string) bool {
	return severity == "ERROR" || severity == "FATAL" || severity == "PANIC"
}

// onlyOfStatements reports whether the server sends a code only for a statement that it has rolled back, whatever the
// severity. The server may also end a connection or itself with the other codes, after a commit.
func onlyOfStatements(code string) bool {
	switch code {
	case "40001", "40P01", "55P03", "57014", "25006", "3F000":
		return true
	}
	switch code[:min(2, len(code))] {
	case "22", "23", "42":
		return true
	}
	return false
}

// setKind sets what follows from an error that the server sent. If a statement fails, the server has rolled its transaction
// back, so nothing was done. An error that ends the connection may come after the commit.
func setKind(f *sqlstore.Failure, p *pgconn.PgError) {
	class := p.Code[:min(2, len(p.Code))]
	if p.Severity != "ERROR" && p.SeverityUnlocalized != "ERROR" || class == "08" || p.Code == "40003" {
		return
	}
	f.Kind = backend.ErrUnavailable
	if stale(p) {
		f.Again = true
		f.Advice = "a statement prepared on a connection no longer exists"
		return
	}
	switch p.Code {
	case "40001", "40P01", "23505", "42P07", "42710": // serialization failure, deadlock, or two processes that create the same tables
		f.Again = true
		f.Advice = "other transactions changed the same rows at each attempt"
	case "55P03", "57014":
		f.Advice = "the server stopped waiting for a lock on the row: end the transaction that has it, or raise lock_timeout or statement_timeout"
	case "25006":
		f.Advice = "this server is read-only: connect to the primary, and check that default_transaction_read_only is off"
	case "42P01", "42703", "3F000":
		f.Kind, f.Missing = backend.ErrInvalid, true
	case "42501":
		f.Kind, f.Denied = backend.ErrInvalid, true
		f.Advice = "this user lacks a right: GRANT it SELECT, INSERT, UPDATE and DELETE on all the tables"
	case "53100":
		f.Advice = "the disk of the server is full"
	case "XX001", "XX002":
		f.Kind, f.Advice = backend.ErrCorrupt, "the tables are damaged"
	default:
		switch class {
		case "22", "23", "42":
			f.Kind = backend.ErrInvalid
		}
	}
}
