//go:build unix

package otherlocks

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

const advisoryPage = "postgresql-advisory-locks.md"

// endSession ends the session that has the advisory lock, as a broken connection does.
const endSession = `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid = 4711`

func TestProgramsOfTheChangeFromAdvisoryLocksNeverMeet(t *testing.T) {
	m := build(t, advisoryPage, "DATABASE_URL="+databases.PostgreSQL(t).Database(t))
	m.neverMeets(t)
	m.meets(t)
}

func TestAdvisoryLockIsLostWithItsConnection(t *testing.T) {
	server := databases.PostgreSQL(t)
	url := server.Database(t)
	m := build(t, advisoryPage, "DATABASE_URL="+url)
	fleet := pageprogram.NewFleet(t)
	one := fleet.Start("the holder", m.old, m.env...)
	one.Works()
	server.Run(t, url, endSession)
	fleet.Start("the second", m.old, m.env...).Overlaps()
	one.Finish() // it has noticed nothing
}

func TestProgramWithBothLocksStopsWhenTheAdvisoryLockIsLost(t *testing.T) {
	server := databases.PostgreSQL(t)
	url := server.Database(t)
	m := build(t, advisoryPage, "DATABASE_URL="+url)
	one := pageprogram.NewFleet(t).Start("the holder", m.both, m.env...)
	one.Works()
	server.Run(t, url, endSession)
	one.Exits(1)
}

func TestPoolerGivesAnAdvisoryLockToTwoPrograms(t *testing.T) {
	server := databases.PostgreSQL(t)
	url := server.NewPgBouncer(t).Before(t, server.Database(t))
	m := build(t, advisoryPage, "DATABASE_URL="+url+"&default_query_exec_mode=simple_protocol")
	fleet := pageprogram.NewFleet(t)
	one := fleet.Start("the holder", m.old, m.env...)
	one.Works()
	fleet.Start("the second", m.old, m.env...).Overlaps()
	one.Finish()
}
