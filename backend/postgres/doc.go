// Package postgres keeps leases in a PostgreSQL database, version 12 or later.
//
//	postgres://user:password@host/database
//	postgres://host/database?ns=staging&prefix=locks_&schema=ops&clock=store&poll=250ms
//
// It promises what package claim promises, whatever the clocks of machines show. It loses no acknowledged write as long
// as the database loses no committed transaction. After a restore from a backup, or a failover to a server that had not
// received every write, raise the floor.
//
// # How it works
//
// Package sqlstore has the SQL. Each call is one statement, which is a transaction of its own. Claims and releases of
// several names that come at the same time share one statement. Stores of one process that were opened with the same URL
// and configuration share it too. No transaction stays open between two messages. A session keeps nothing but prepared
// statements. A statement is prepared only on a connection that reaches the server itself, and only
// after the first few statements. So the store works:
//
//   - behind pgbouncer in transaction mode,
//   - with any default isolation level,
//   - with a pool that the program already has. In that pool statements are prepared only if its DefaultQueryExecMode is
//     to cache statements, which is pgx's default.
//
// [NewDB] makes a store on a *sql.DB. With pgx's driver it works as on a pool. With another driver it prepares nothing,
// has no connections of its own, and polls.
//
// A statement for more names than claims and releases share is never prepared, so that the server plans it for the table
// as it is.
//
// No column that changes has an index, so each write of a lease stays on the page of its row (it is a HOT update), and
// the table stays fast without vacuum.
//
// # Waiting
//
// A process that waits for names has a ticket for each of them in a table. One session looks at all its tickets, within
// the server, until the process may claim a name: see [Store.Queues]. No promise depends on tickets. Where tickets cannot
// be used, processes poll, and receive the same notifications as watches.
//
// After a change of owner, the store notifies the processes that listen. It sends many names in one transaction that does
// not wait for the disk, because PostgreSQL commits transactions that notify one after the other. A process that listens
// does so on its own connection, and records this in the row of the namespace three times a minute. Each write that
// changes an owner reads that row. If no process has recorded within a minute that it listens, the store notifies none.
// A process misses notifications if a pooler stands between it and the server, or if the change comes just when the
// process begins to listen or when the notifying process is killed. It then finds the change by polling.
//
// # Settings that lose writes
//
// The store refuses to write on a connection with synchronous_commit = off, and refuses a server with fsync = off: a
// crash could make two processes hold one name. [Config.AcceptLoss], in a URL accept=loss, accepts that.
//
// # Store-clock mode
//
// In store-clock mode ([Config.StoreClock]) the writing statement itself decides by the clock of the database whether a
// lease has expired. A name whose holder has died is free as soon as its TTL has passed on that clock, even for a process
// that reads the record for the first time. If the server's clock jumps ahead, for instance at a failover, leases end
// early. The mode is a property of the namespace, and every write checks it.
//
// # The gate
//
// [Gate] makes a transaction commit only if a lease is still held. It keeps a key-share lock on the row of the lease until
// the transaction ends. Renewals do not wait for this lock. Takeovers and releases do, because they lock the row for update
// before they write it. So a transaction that hangs keeps its name from all other processes: bound it with
// idle_in_transaction_session_timeout and statement_timeout.
//
// # What it never does
//
// It reads no standby and changes no setting of a session in the pool. Once the tables exist, it needs no right but to read
// and write them. (A process that waits has a session of its own, with its own settings.) It runs one goroutine while
// notifications are to be sent, and one for each batch of writes under way; Close waits for both. The pool that [Open]
// makes has some more.
package postgres
