// Package postgres keeps leases in a PostgreSQL database, version 12 or later.
//
//	postgres://user:password@host/database
//	postgres://host/database?ns=staging&prefix=locks_&schema=ops&clock=store&poll=250ms
//
// It promises what package claim promises, whatever the clocks of machines show, and loses nothing of what was
// acknowledged as long as the database loses nothing that was committed. After a restore from a backup, or a
// failover to a server that had not received everything, raise the floor.
//
// # How it works
//
// The SQL is that of package sqlstore: every call is one statement, which is a transaction of its own, or one with those
// of other names that are sent in one message. No transaction is open between two messages, and nothing is kept in a
// session but prepared statements; those only where
// a connection reaches the server itself, and after its first few statements. So it works behind pgbouncer in
// transaction mode, with any default isolation level, and with a pool that the program has anyway. In that pool
// nothing is prepared unless its own DefaultQueryExecMode is to cache statements, which is the default of pgx. Where
// nothing is prepared nothing is sent together either. A statement for more than a few names is never prepared: the
// server plans it for the table as it is.
//
// No column that changes has an index, so each write of a lease stays on the page of its row (it is a HOT update), and
// needs no vacuum to remain fast.
//
// A process that waits for names has a ticket for each in a table, and one session that looks at them, within the server,
// until it is its turn: see [Store.Queues]. Nothing rests on the tickets. Where that cannot work, processes poll, and are
// notified as those who watch are.
//
// After a change of owner those who listen are notified, of many at once where there are many: in a transaction of its
// own that does not wait for the disk, since PostgreSQL commits transactions that notify one after the other. They
// listen on a connection of their own, and say so in the row of the namespace three times a minute; each write that
// changes an owner reads that row, and as long as nobody has said so within a minute, nobody is notified. Where that
// cannot work, because a pooler stands between, or somebody began to listen or was killed just at that moment, they
// find out by asking.
//
// A write is refused on a connection with synchronous_commit = off, and the server with fsync = off: a crash could
// make two hold one name. [Config.AcceptLoss], in a URL accept=loss, accepts that.
//
// In store-clock mode ([Config.StoreClock]) the clock of the database judges in the statement that writes: a name
// whose holder has died is free as soon as its TTL has passed there, also for who has only just begun to look.
// Then a clock of the server that jumps ahead, at a failover for instance, ends leases early. The mode is a
// property of the namespace, and each write checks it.
//
// # The gate
//
// [Gate] makes a transaction commit only if a lease is still held. It holds a key-share lock on the row of the
// lease until the transaction ends: renewals go on; takeover and release, which lock the row for update before they
// write it, wait. A transaction that hangs therefore
// keeps its name from all others: bound it with idle_in_transaction_session_timeout and statement_timeout.
//
// # What it never does
//
// It reads no standby, sets nothing in a session of the pool, and needs no right but to read and write its tables once
// they are there. (The session of a process that waits is its own, and has settings of its own.) It has one goroutine while somebody is still to be notified, and one for each group of writes that is
// under way, which Close waits for; the pool that [Open] makes has some.
package postgres
