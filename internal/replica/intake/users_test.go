package intake

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// fill adds commands of a user until the queue refuses one, and returns how many it took on.
func fill(q *Queue, user string, c entry.Command) (n int) {
	by := access.Caller{User: user}
	for ; !q.Full("c", by, c); n++ {
		q.Add(clock.Instant{}, "c", q.Prepare(1, c, by))
	}
	return n
}

// One user with a flood of commands, of whatever kind, leaves room for a claim of another.
func TestOneUserLeavesRoomForClaimsOfOthers(t *testing.T) {
	claim := ownership.Claim{Name: "n", Lease: 7}
	for what, c := range map[string]entry.Command{
		"puts": keyspace.PutRequest{Key: []byte("k")}, "releases": ownership.Release{Name: "n", Lease: 8}, "grants": entry.Grant{Lease: 9},
	} {
		q := New()
		if n := fill(q, "flood", c); n != MaxQueueForGrants/4*3 {
			t.Errorf("%d %s of one user wait", n, what)
		}
		if q.Full("c", access.Caller{User: "other"}, claim) {
			t.Errorf("after a flood of %s a claim of another user is refused", what)
		}
		if n := fill(q, "second", c); n != MaxQueueForGrants/16*3 {
			t.Errorf("%d %s of a second user wait", n, what)
		}
	}
}

// Commands without a user have the whole queue, as without access. A user that comes to it then may add one command as long as
// anybody may.
func TestCommandsWithoutAUserHaveTheWholeQueue(t *testing.T) {
	q := New()
	put := keyspace.PutRequest{Key: []byte("k")}
	if n := fill(q, "", put); n != MaxQueueForWrites {
		t.Errorf("%d puts wait", n)
	}
	release := ownership.Release{Name: "n", Lease: 7}
	if n := fill(q, "u", release); n != 1 {
		t.Errorf("%d releases of a user are taken on besides", n)
	}
	if n := fill(q, "", release); n != MaxQueue-MaxQueueForWrites-1 {
		t.Errorf("%d releases are taken on besides", n)
	}
	if !q.Full("c", access.Caller{User: "v"}, release) {
		t.Error("a full queue takes on a command of a new user")
	}
}

// TestUsersOfTheQueueAreCounted counts the short commands of each user again after each step.
func TestUsersOfTheQueueAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, id := New(), uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				by := access.Caller{User: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "user")}
				for range rapid.IntRange(1, 50).Draw(t, "n") {
					id++
					var c entry.Command = keyspace.PutRequest{Key: fmt.Append(nil, id)}
					switch rapid.IntRange(0, 3).Draw(t, "kind") {
					case 0:
						c = keyspace.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<16)}
					case 1:
						c = entry.Grant{Lease: lessor.ID(id)}
					}
					q.Add(clock.Instant{}, by.User, q.Prepare(id, c, by))
				}
			},
			"own":  func(*rapid.T) { q.AddOwn(entry.Compact{Revision: 1}) },
			"take": func(*rapid.T) { q.Take(clock.Instant{}) },
			"remove": func(*rapid.T) {
				q.Remove(func(c entry.Command) bool { _, grant := c.(entry.Grant); return grant })
			},
			"drain": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "drain") == 0 {
					q.Drain()
				}
			},
			"": func(t *rapid.T) {
				want := make(map[string]int)
				for _, p := range q.short {
					if p.Caller.User != "" {
						want[p.Caller.User]++
					}
				}
				if fmt.Sprint(q.users) != fmt.Sprint(want) {
					t.Fatalf("the queue counts %v, its commands %v", q.users, want)
				}
			},
		})
	})
}
