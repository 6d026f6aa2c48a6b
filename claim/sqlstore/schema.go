package sqlstore

import "strings"

// These describe the tables to people who read them in the database's own shell.
const (
	aboutLease  = `Leases: one row for each name that was ever leased. It is never deleted by release or expiry, so that tokens never start again.`
	aboutSeen   = `When each machine (each boot of it) first saw a write of a record. A machine that takes a lease over counts from there.`
	aboutClock  = `Until when each machine (each boot of it) is known to have been writing.`
	aboutTicket = `Tickets: one row for each process and name that the process waits for. No decision depends on them: the table of leases alone says who holds a name. The table is emptied by a crash of the server, and may be emptied at any time.`
	aboutLook   = `Waits until it is the turn of a process to claim a name. Without this function, processes send its source with each wait.`
	aboutSpace  = `Namespaces: leases of different namespaces are independent of each other.`
)

// aboutColumn describes one column.
type aboutColumn struct{ table, column, text string }

// aboutColumns explains the columns whose names do not suffice.
var aboutColumns = []aboutColumn{
	{"lease", "holder", "the holder of the name; empty if it has none"},
	{"lease", "token", "the fencing token, one more at each change of ownership; never set it back"},
	{"lease", "op", "the id of the last write, never used again; every write names the one it replaces"},
	{"lease", "incarnation", "the id of the claim, which tells apart holders with the same id"},
	{"lease", "domain", "the boot of the machine to whose two clocks the next four columns belong"},
	{"lease", "written_raw", "before the last write, in nanoseconds"},
	{"lease", "expiry_raw", "until when the lease was promised, in nanoseconds"},
	{"lease", "ttl_ns", "granted, in nanoseconds"},
	{"lease", "pins", "why the name must stay with its holder, as JSON; empty if it need not"},
	{"lease", "card", "of the holder, as JSON; only shown"},
	{"lease", "revoked", "why renewals are refused; empty if they are not"},
	{"lease", "since", "when it was claimed, by the wall clock there; only shown"},
	{"lease", "mark", "the highest completed tick of the name, after the token of the tenure that completed it; empty if there is none"},
	{"lease", "recent", "the tenures that ended after those in past, the newest first, as JSON; only shown"},
	{"lease", "past", "tenures that ended, the newest first, as JSON; with those in recent the last sixteen count; only shown"},
	{"namespace", "mode", "whose clocks judge when leases end: those of the writer of a record, or that of the store; never change it"},
	{"namespace", "floor", "all later tokens are above it; raise it after a restore of the database"},
	{"namespace", "version", "of these tables"},
}

// aboutTimes explains the columns that only a server has.
var aboutTimes = []aboutColumn{
	{"lease", "written_at", "when it was written, by the clock of this database; only in mode store anything depends on it"},
	{"ticket", "place", "the order of the queue of a name: the lowest is its head; each priority has 2^47 places, the higher ones below 0; a ticket below -2^62 was moved to the front"},
	{"ticket", "door", "the number of a session-level advisory lock that the process holds while it runs"},
	{"ticket", "kind", "what it waits for, and for which holder; a program that does not know a kind takes it for exclusive"},
	{"namespace", "listened_at", "when a process last noted that it listens for changes of owners, by the clock of this database; changes are notified only if that was within a minute"},
}

// about returns the description of a column of all dialects, or nothing.
func about(table, column string) string {
	for _, a := range aboutColumns {
		if a.table == table && a.column == column {
			return a.text
		}
	}
	return ""
}

// postgresqlTables creates the tables of PostgreSQL, except that of tickets.
const postgresqlTables = `CREATE TABLE IF NOT EXISTS {namespace} (
	ns      text COLLATE "C" PRIMARY KEY,
	mode    text    NOT NULL CHECK (mode IN ('writer', 'store')),
	floor   bigint  NOT NULL CHECK (floor >= 0),
	version integer NOT NULL,
	listened_at timestamptz NOT NULL DEFAULT '-infinity'
);

CREATE TABLE IF NOT EXISTS {lease} (
	ns           text COLLATE "C" NOT NULL,
	name         text COLLATE "C" NOT NULL,
	holder       text   NOT NULL,
	token        bigint NOT NULL,
	op           uuid   NOT NULL,
	incarnation  uuid   NOT NULL,
	domain       text   NOT NULL,
	written_raw  bigint NOT NULL,
	written_boot bigint NOT NULL,
	expiry_raw   bigint NOT NULL,
	expiry_boot  bigint NOT NULL,
	ttl_ns       bigint NOT NULL,
	written_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
	card         text   NOT NULL DEFAULT '',
	revoked      text   NOT NULL DEFAULT '',
	since        text   NOT NULL DEFAULT '',
	pins         text   NOT NULL DEFAULT '',
	mark         text   NOT NULL DEFAULT '',
	recent       text   NOT NULL DEFAULT '',
	past         text   NOT NULL DEFAULT '',
	-- No column that changes may have an index, so that each write stays on the page of its row.
	PRIMARY KEY (ns, name)
) WITH (fillfactor = 70);

CREATE TABLE IF NOT EXISTS {sighting} (
	ns     text COLLATE "C" NOT NULL,
	name   text COLLATE "C" NOT NULL,
	domain text COLLATE "C" NOT NULL,
	op     uuid   NOT NULL,
	raw    bigint NOT NULL,
	boot   bigint NOT NULL,
	PRIMARY KEY (ns, name, domain)
);

CREATE TABLE IF NOT EXISTS {clock} (
	ns     text COLLATE "C" NOT NULL,
	domain text COLLATE "C" NOT NULL,
	raw    bigint NOT NULL,
	boot   bigint NOT NULL,
	PRIMARY KEY (ns, domain)
);

`

func (d postgresqlDialect) createTables(t tables) string {
	text := postgresqlTables + postgresqlTickets + d.lookFunction(t) + ";\n\n-- Tables of leases from before there were marks get their column.\n" + postgresqlMarks + "\n"
	comment := func(kind, what, words string) {
		text += "COMMENT ON " + kind + " " + what + " IS " + quoteText(words) + ";\n"
	}
	for _, table := range []struct{ name, words string }{{"lease", aboutLease}, {"sighting", aboutSeen}, {"clock", aboutClock}, {"ticket", aboutTicket}, {"namespace", aboutSpace}} {
		comment("TABLE", "{"+table.name+"}", table.words)
	}
	comment("FUNCTION", t.name(t.lookName())+"()", aboutLook)
	for _, a := range append(aboutColumns[:len(aboutColumns):len(aboutColumns)], aboutTimes...) {
		comment("COLUMN", "{"+a.table+"}."+a.column, a.text)
	}
	return t.fill(text)
}

func (d sqliteDialect) createTables(t tables) string {
	integer := func(column string) string {
		return column + ` INTEGER NOT NULL CHECK (typeof(` + column + `) = 'integer')`
	}
	table := func(name, words string, columns []string, end string) string {
		text := "CREATE TABLE IF NOT EXISTS {" + name + "} (\n\t-- " + words + "\n"
		for _, c := range columns {
			text += "\t" + c + ","
			column, _, _ := strings.Cut(c, " ")
			if words := about(name, column); words != "" {
				text += " -- " + words
			}
			text += "\n"
		}
		return text + "\t" + end + "\n);\n\n"
	}
	text := table("namespace", aboutSpace, []string{"ns TEXT NOT NULL", "mode TEXT NOT NULL CHECK (mode = 'writer')",
		integer("floor"), integer("version")}, "PRIMARY KEY (ns)")
	text += table("lease", aboutLease, []string{"ns TEXT NOT NULL", "name TEXT NOT NULL", "holder TEXT NOT NULL", integer("token"),
		"op TEXT NOT NULL", "incarnation TEXT NOT NULL", "domain TEXT NOT NULL", integer("written_raw"), integer("written_boot"),
		integer("expiry_raw"), integer("expiry_boot"), integer("ttl_ns"), "card TEXT NOT NULL DEFAULT ''", "revoked TEXT NOT NULL DEFAULT ''",
		"since TEXT NOT NULL DEFAULT ''", "pins TEXT NOT NULL DEFAULT ''", "mark TEXT NOT NULL DEFAULT ''", "recent TEXT NOT NULL DEFAULT ''", "past TEXT NOT NULL DEFAULT ''"}, "PRIMARY KEY (ns, name)")
	text += table("sighting", aboutSeen, []string{"ns TEXT NOT NULL", "name TEXT NOT NULL", "domain TEXT NOT NULL", "op TEXT NOT NULL",
		integer("raw"), integer("boot")}, "PRIMARY KEY (ns, name, domain)")
	text += table("clock", aboutClock, []string{"ns TEXT NOT NULL", "domain TEXT NOT NULL", integer("raw"), integer("boot")}, "PRIMARY KEY (ns, domain)")
	return t.fill(text)
}
