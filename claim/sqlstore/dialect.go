package sqlstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Dialect is what differs between databases. There are [PostgreSQL] and [SQLite]; other packages cannot
// implement it.
type Dialect interface {
	// Scheme returns the scheme of the URLs of stores with this dialect, which is also its name in messages.
	Scheme() string

	statements(t tables) statements
	createTables(t tables) string
	// addMarks returns the statements that add the column of marks to a table of leases from before there were marks.
	addMarks(t tables) string
	// writeSettings returns the last arguments of a write of one record: what the write depends on besides the
	// record.
	writeSettings(c Config) []any
	// batch returns a statement for several extensions and its arguments. Each swap is a name, the values of extended,
	// and the old op.
	batch(c Config, s *statements, swaps [][]any) (statement string, args []any)
	// mostTogether returns how many records one statement may write while other writers wait for it.
	mostTogether() int
	// names returns the argument of statements.gather for many names.
	names(names []string) any
	// togetherArgs returns the arguments of statements.together. The values of each swap are those of member.
	togetherArgs(c Config, columns []string, swaps [][]any) []any
	// batchVerdict reads the rows of a statement of batch. It returns the names whose records were written.
	batchVerdict(rows, swaps [][]any) ([]string, verdict)
}

// verdict is what else the rows of a batch show.
type verdict struct {
	known        bool   // the namespace exists, and the other fields are known
	mode, commit string // of the namespace; of the connection, if that can differ
}

// statements are all statements of a dialect. Arguments are numbered; the method that runs a statement says
// what they are.
type statements struct {
	version string // the newest version of the schema, and whether the table of leases has the column of marks
	enter   string // creates a namespace
	space   string // mode, floor, and whether commits are durable
	raise   string // raises the floor

	get    string
	gather string // of many names
	list   string // without an end of the range
	within string // with one

	// These return a row if they write one. The row of create, update, take and end says whether any process
	// listens, if the database knows.

	create, update string
	take           string // of all columns except those that a swap keeps: pins, mark and past
	end            string // of all columns except past: an added tenure goes into recent
	extend         string
	// As take, end and update, but they write nothing if another transaction has locked the row, and do not
	// wait for that lock. They are empty if the database has no such locks.
	takeNow, endNow, updateNow string

	batch string
	alike string // as batch, for swaps that differ only in their names and ops
	// together does several swaps that change the owner, each as takeNow, endNow or updateNow would, and returns a row
	// for each that it did: the name, and what those return. It is empty if the database has no such locks.
	together string
	listen   string // records that this store listens, if the database can tell
	notify   string // notifies processes that wait or watch

	observed, observe         string
	sweep                     string
	forget, remove            string
	acknowledged, acknowledge string

	gate, owners string

	queue queueing
}

// withoutLockWait returns the statement that does what another does, but never waits for a row; or "".
func (s *statements) withoutLockWait(statement string) string {
	switch statement {
	case s.take:
		return s.takeNow
	case s.end:
		return s.endNow
	case s.update:
		return s.updateNow
	case s.queue.take:
		return s.queue.takeNow
	}
	return ""
}

// tables are the names of the tables.
type tables struct {
	schema, prefix string
	marks          bool // the table of leases has the column of marks
}

func (t tables) name(what string) string {
	name := quote(t.prefix + what)
	if t.schema != "" {
		name = quote(t.schema) + "." + name
	}
	return name
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText quotes a text.
func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// markValue returns the expression for the mark in row l of the table of leases.
func (t tables) markValue() string {
	if t.marks {
		return "l.mark"
	}
	return "''"
}

// fill puts the names of the tables into a text.
func (t tables) fill(text string) string {
	return strings.NewReplacer("{lease}", t.name("lease"), "{sighting}", t.name("sighting"), "{clock}", t.name("clock"),
		"{namespace}", t.name("namespace"), "{ticket}", t.name("ticket"), "{mark}", t.markValue(), "{lease_text}", quoteText(t.name("lease")), "{lease_bare}", quoteText(t.prefix+"lease"), "{ticket_door}", quote(t.prefix+"ticket_door"), "{prefix}", t.prefix).Replace(text)
}

// maxPrefix leaves room for the names of tables and constraints within PostgreSQL's limit for identifiers.
const maxPrefix = 32

func (t tables) check() error {
	if len(t.prefix) > maxPrefix || len(t.schema) > 63 || strings.ContainsRune(t.schema, 0) {
		return fmt.Errorf("%w: the prefix of the tables may have %d bytes, and the name of their schema 63", backend.ErrInvalid, maxPrefix)
	}
	for _, r := range t.prefix {
		if r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return fmt.Errorf("%w: the prefix of the tables %q may have lower-case letters, digits and underscores, such as leasekeeper_", backend.ErrInvalid, t.prefix)
		}
	}
	return nil
}

// DefaultPrefix is the default prefix of the names of the tables.
const DefaultPrefix = "leasekeeper_"

// Schema returns the statements that create the tables, for a person to read and to run. Of existing tables they change
// nothing, except that on PostgreSQL they add the column of marks to one that lacks it. The prefix is that of [Config.Prefix].
func Schema(d Dialect, prefix string) (string, error) {
	t := tables{prefix: prefix}
	if prefix == "" {
		t.prefix = DefaultPrefix
	}
	if err := t.check(); err != nil {
		return "", err
	}
	return d.createTables(t), nil
}

// columns are those of a record, in the order of their values, without ns and name. Two of them keep past
// tenures: recent and past. Past tenures are longer than all the rest, so most releases write only the shorter
// column.
var columns = []string{"holder", "token", "op", "incarnation", "domain", "written_raw", "written_boot", "expiry_raw",
	"expiry_boot", "ttl_ns", "card", "revoked", "since", "pins", "mark", "recent", "past"}

// columns returns the columns that a swap writes which changes all of them. Tables from before marks lack one.
func (t tables) columns() []string {
	if t.marks {
		return columns
	}
	at := slices.Index(columns, "mark")
	return slices.Delete(slices.Clone(columns), at, at+1)
}

// ended returns the columns of a swap that adds to the past.
func (t tables) ended() []string {
	all := t.columns()
	return all[:slices.Index(all, "past")]
}

// extended are the columns that a swap with Extends changes. The others are not even sent: they may be long.
var extended = []string{"op", "domain", "written_raw", "written_boot", "expiry_raw", "expiry_boot", "ttl_ns"}

// taken are the columns that a swap changes which keeps pins, past and mark.
var taken = columns[:slices.Index(columns, "pins")]

// The places of the first arguments of a swap.
const (
	argNamespace = 1
	argName      = 2
	argRecord    = 3 // and those that follow, one for each column that is written
)

// places are the places of the arguments that follow a given number of column values. The settings of
// PostgreSQL are the last.
type places struct {
	mode, old, ended, above, settings int
}

func placesAfter(columns []string) places {
	n := argRecord + len(columns)
	return places{n, n + 1, n + 2, n + 3, n + 4}
}

// token is the place of the token among the arguments of a swap of all columns, of taken, or of those of an end.
const token = argRecord + 1
