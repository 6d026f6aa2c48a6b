package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

func init() { backend.RegisterInspector(sqlstore.SQLite.Scheme(), inspect) }

// inspectReads is the number of small reads of which the fastest counts.
const inspectReads = 5

// writableByAll is the permission of every user to write to a file.
const writableByAll = 0o002

// inspected is a file whose connection refuses to change it.
type inspected struct{ db *sql.DB }

// Query implements [sqlstore.DB].
func (i inspected) Query(ctx context.Context, statement string, args ...any) ([][]any, error) {
	prepared, err := i.db.PrepareContext(ctx, statement)
	if f := failureOf(err, false); f != nil {
		return nil, f
	}
	defer prepared.Close()
	rows, err := runStatement(ctx, prepared, args)
	if f := failureOf(err, false); f != nil {
		return nil, f
	}
	return rows, nil
}

// Script implements [sqlstore.DB]. It refuses: nothing is changed.
func (inspected) Script(context.Context, string) error {
	return &sqlstore.Failure{Kind: backend.ErrInvalid, Err: errors.New("an inspection changes nothing")}
}

// inspect implements [backend.Inspector].
func inspect(ctx context.Context, u *url.URL) (found backend.Inspection, err error) {
	path, c, _, err := parse(u)
	if err != nil {
		return found, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return found, fmt.Errorf("sqlite: %w: %w", backend.ErrInvalid, err)
	}
	if err := reachable(path); err != nil {
		return found, err
	}
	if path, err = follow(path); err != nil {
		return found, err
	}
	found.Newest = sqlstore.Version
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		found.Server = "SQLite, " + path + " does not exist yet"
		return found, nil
	}
	if err := onePath(path); err != nil {
		return found, err
	}
	if _, err := locate(path); err != nil {
		return found, err
	}
	return inspectFile(ctx, path, c, found)
}

// inspectFile inspects a file that exists. The connection cannot change what the database holds. Like every reader it may create
// SQLite's log next to the file, and the last one that closes moves the log into the file.
func inspectFile(ctx context.Context, path string, c Config, found backend.Inspection) (backend.Inspection, error) {
	db, err := sql.Open("sqlite", source(path)+"&mode=rw&_pragma=query_only(1)")
	if err != nil {
		return found, fmt.Errorf("sqlite: %w: %s: %w", backend.ErrInvalid, path, err)
	}
	defer db.Close() // its error does not matter: nothing was changed
	db.SetMaxOpenConns(1)
	file := inspected{db}
	for range inspectReads {
		before := time.Now()
		rows, failed := sqlstore.Ask(ctx, file, sqlstore.DefaultPatience, "SELECT sqlite_version(), (SELECT * FROM pragma_journal_mode), (SELECT count(*) FROM sqlite_master)")
		if failed != nil {
			return found, fmt.Errorf("sqlite: open %s: %w: %w", path, failed.Kind, failed)
		}
		if took := time.Since(before); found.RoundTrip == 0 || took < found.RoundTrip {
			found.RoundTrip = took
		}
		version, _ := rows[0][0].(string)
		journal, _ := rows[0][1].(string)
		found.Server, found.Settings = "SQLite "+version+", "+path, []backend.Setting{journalSetting(journal, c.AcceptLoss)}
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&writableByAll != 0 && runtime.GOOS != "windows" {
		found.Settings = append(found.Settings, backend.Setting{Name: "permissions", Value: info.Mode().Perm().String(), Fix: "chmod o-w " + path + ": every user can take leases in it"})
	}
	found.Schema, err = sqlstore.TablesVersion(ctx, file, sqlstore.SQLite, sqlstore.Config{Namespace: c.Namespace, Prefix: c.Prefix})
	return found, err
}

// journalSetting says whether a journal mode keeps acknowledged writes.
func journalSetting(mode string, accepted bool) backend.Setting {
	s := backend.Setting{Name: "journal_mode", Value: mode}
	if mode == "off" || mode == "memory" {
		s.Fix, s.Accepted = "set PRAGMA journal_mode = WAL: a crash may destroy the file", accepted
	}
	return s
}
