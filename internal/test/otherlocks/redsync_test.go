//go:build unix

package otherlocks

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

const redsyncPage = "redsync.md"

// redisURL returns the URL of an empty database.
func redisURL(t *testing.T) string {
	t.Helper()
	socket, database := databases.Redis(t).Database(t)
	return fmt.Sprintf("unix://%s?db=%d", socket, database)
}

func TestProgramsOfTheChangeFromRedsyncNeverMeet(t *testing.T) {
	ours := etcdServers[1].start(t)
	m := build(t, redsyncPage, "REDIS_URL="+redisURL(t), "LEASEKEEPER_STORE=leasekeeper://"+ours+"/")
	m.neverMeets(t)
	m.meets(t)
}

// The key is gone, as after a failover to a replica that had not received it.
func TestRedsyncLockIsLostWithItsKey(t *testing.T) {
	url := redisURL(t)
	m := build(t, redsyncPage, "REDIS_URL="+url)
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	fleet := pageprogram.NewFleet(t)
	one := fleet.Start("the holder", m.old, m.env...)
	one.Works()
	if err := client.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	fleet.Start("the second", m.old, m.env...).Overlaps()
	one.Exits(1) // its next Extend fails
}
