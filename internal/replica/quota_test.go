package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/quota"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// limits are those of leases and names.
func limits(leases, names int64) []access.Limit {
	return []access.Limit{{Resource: access.Leases, Most: leases}, {Resource: access.Names, Most: names}}
}

// newWorldWithQuotas is a member that serves with access: u may own 4 leases and claim 2 names, v 3 and 3, and root anything.
func newWorldWithQuotas(t testing.TB) *world {
	w := newWorld(t).serve()
	withAccess(t, func(id uint64, c entry.Command, _ access.Caller) Reply { return w.do(id, c) })
	for _, c := range []access.Command{
		access.SetQuota{Limits: limits(3, 3)}, access.SetQuota{User: "u", Limits: limits(4, 2)}, access.SetQuota{User: "root", Limits: limits(0, 0)},
	} {
		if reply := w.byUser(1, "root", c); reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	return w
}

// byUser sends a request of a user and returns the answer.
func (w *world) byUser(id uint64, user string, c entry.Command) Reply {
	w.t.Helper()
	by := access.Caller{User: user, Revision: w.replica.Access().Load().Revision()}
	return w.replyTo(id, append(w.step(Request{ID: id, Command: c, Caller: by}), w.settle()...))
}

// counted counts the leases of each user in the records on the disk.
func (w *world) counted() map[string]quota.Usage {
	w.t.Helper()
	w.flush()
	counts := make(map[string]quota.Usage)
	err := record.Leases(w.db, func(m *logpb.Lease) bool {
		u := counts[string(m.Creator)]
		u.Leases++
		if m.Claimed {
			u.Names++
		}
		counts[string(m.Creator)] = u
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return counts
}

// TestQuotasHoldInRandomRuns draws commands of users, expiries and restarts. After each step the ledger must have what is on
// the disk, and the outcome of each command must be that of a member that counts all leases again.
func TestQuotasHoldInRandomRuns(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 17))
			w := newWorldWithQuotas(t)
			defer func() { w.close() }()
			refused := 0
			for step := range 300 {
				id := lessor.ID(1 + rng.IntN(24))
				user := []string{"root", "u", "u", "v"}[rng.IntN(4)]
				name := fmt.Sprintf("n%d", rng.IntN(6))
				before := w.counted()[user]
				_, exists := w.replica.Lessor().Lookup(id)
				var c entry.Command
				switch rng.IntN(12) {
				case 0, 1, 2:
					c = entry.Grant{Lease: id, TTL: time.Duration(1+rng.IntN(30)) * time.Second}
				case 3, 4, 5, 6:
					c = ownership.Claim{Name: name, Lease: id, TTL: time.Duration(1+rng.IntN(30)) * time.Second, Wait: rng.IntN(4) > 0}
				case 7:
					c = ownership.Release{Name: name, Lease: id}
				case 8:
					c = entry.Revoke{Lease: id}
				case 9:
					c, user = keyspace.DeleteRequest{Key: ownership.Key(name, id)}, "root"
				case 10:
					w.advance(time.Duration(rng.IntN(20)) * time.Second)
				case 11:
					if step%3 == 0 {
						w = w.restarted()
					} else {
						c, user = access.SetQuota{User: "v", Limits: limits(rng.Int64N(6)-2, rng.Int64N(6)-2)}, "root"
					}
				}
				if c != nil {
					reply := w.byUser(uint64(100+step), user, c)
					if _, makes := entry.LeaseMade(c); makes && !exists {
						refused += w.mustFollowQuota(user, before, c, reply)
					} else if errors.Is(reply.Err, access.ErrQuota) {
						t.Fatalf("step %d: %T%+v of %s: %v", step, c, c, user, reply.Err)
					}
				}
				counted := w.counted()
				for _, user := range []string{"root", "u", "v"} {
					if got := w.replica.quotas.Usage(user); got != counted[user] {
						t.Fatalf("step %d, after %T%+v: the ledger has %+v of %s, the disk %+v", step, c, c, got, user, counted[user])
					}
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// mustFollowQuota checks the answer to a command that would make a lease of a user who had these. It returns 1 if the quota
// refused it.
func (w *world) mustFollowQuota(user string, had quota.Usage, c entry.Command, reply Reply) int {
	w.t.Helper()
	p := w.replica.Access().Load()
	leases, names := p.Most(user, access.Leases), p.Most(user, access.Names)
	claim, claims := c.(ownership.Claim)
	full := leases >= 0 && had.Leases >= leases || claims && names >= 0 && had.Names >= names
	if claims && !claim.Wait && reply.Err == nil {
		if answer := reply.Result.(ownership.Claimed); answer.Lease == lessor.NoLease {
			full = false // the name is held, and the claim made nothing
		}
	}
	if errors.Is(reply.Err, ownership.ErrLost) {
		full = false // it comes after its own end
	}
	if errors.Is(reply.Err, access.ErrQuota) != full {
		w.t.Fatalf("%T%+v of %s, who has %+v and may have %d and %d: %v", c, c, user, had, leases, names, reply.Err)
	}
	if full {
		return 1
	}
	return 0
}

// Commands that were all admitted before the first was applied are counted again when they are applied.
func TestQuotaHoldsForCommandsInFlight(t *testing.T) {
	w := newWorldWithQuotas(t)
	defer w.close()
	by := access.Caller{User: "u", Revision: w.replica.Access().Load().Revision()}
	var events []Event
	for id := range uint64(10) {
		events = append(events, Request{ID: 100 + id, Caller: by, Command: ownership.Claim{
			Name: fmt.Sprintf("n%d", id), Lease: lessor.ID(100 + id), TTL: time.Minute,
		}})
	}
	effects := append(w.step(events...), w.settle()...)
	for id := range uint64(10) {
		if err := w.replyTo(100+id, effects).Err; errors.Is(err, access.ErrQuota) != (id >= 2) {
			t.Errorf("claim %d: %v", id, err)
		}
	}
	if got := w.replica.quotas.Usage("u"); got != (quota.Usage{Leases: 2, Names: 2}) {
		t.Errorf("u has %+v", got)
	}
}

// A repeated claim, a renewal and a release count against no quota.
func TestQuotaLeavesRenewalsAndReleasesAlone(t *testing.T) {
	w := newWorldWithQuotas(t)
	defer w.close()
	claim := ownership.Claim{Name: "n", Lease: 7, TTL: time.Minute}
	if reply := w.byUser(2, "u", claim); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	if reply := w.byUser(3, "root", access.SetQuota{User: "u", Limits: limits(0, 0)}); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	if reply := w.byUser(4, "u", claim); reply.Err != nil {
		t.Errorf("a repeated claim: %v", reply.Err)
	}
	w.step(Renewal{ID: 5, Leases: []lessor.ID{7}, User: "u"})
	for e := range Each(w.effects) {
		if renewed, ok := e.(Renewed); ok && (len(renewed.Leases) != 1 || renewed.Leases[0].Err != nil) {
			t.Errorf("a renewal: %+v", renewed)
		}
	}
	if reply := w.byUser(6, "u", ownership.Release{Name: "n", Lease: 7}); reply.Err != nil {
		t.Errorf("a release: %v", reply.Err)
	}
	if reply := w.byUser(8, "u", entry.Grant{Lease: 8, TTL: time.Minute}); !errors.Is(reply.Err, access.ErrQuota) {
		t.Errorf("a grant: %v", reply.Err)
	}
}

// While access is not enabled, no lease has an owner, and no quota counts.
func TestLeasesHaveNoOwnerWithoutAccess(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	if reply := w.do(1, access.SetQuota{Limits: limits(0, 0)}); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	by := access.Caller{User: "u", Revision: 1}
	for id, c := range []entry.Command{entry.Grant{Lease: 1, TTL: time.Minute}, ownership.Claim{Name: "n", Lease: 2, TTL: time.Minute}} {
		if reply := w.replyTo(uint64(10+id), append(w.step(Request{ID: uint64(10 + id), Command: c, Caller: by}), w.settle()...)); reply.Err != nil {
			t.Errorf("%T: %v", c, reply.Err)
		}
	}
	if n := w.replica.quotas.Len(); n != 0 || w.replica.Lessor().Len() != 2 {
		t.Errorf("%d leases have an owner, of %d", n, w.replica.Lessor().Len())
	}
}

// All members count alike, also after a crash, and one that got the whole state.
func TestMembersCountAlike(t *testing.T) {
	g := newLaggingTeam(t)
	leader := g.elected()
	withAccess(t, func(id uint64, c entry.Command, by access.Caller) Reply {
		return g.order(leader, id, Request{ID: id, Command: c, Caller: by})
	})
	laggard := g.follower(leader)
	g.cut = func(m Message) bool { return m.To == laggard || m.From == laggard }
	for i := range uint64(30) {
		g.byUser(leader, 1000+2*i, "u", entry.Grant{Lease: lessor.ID(1 + i), TTL: time.Hour})
		g.byUser(leader, 1001+2*i, "v", ownership.Claim{Name: fmt.Sprintf("n%d", i%7), Lease: lessor.ID(1000 + i), TTL: time.Hour, Wait: true})
	}
	g.cut = func(Message) bool { return false }
	g.pass(time.Second)
	if g.members[laggard].installs == 0 {
		t.Fatal("no state was installed")
	}
	g.same()
	for _, id := range g.ids {
		g.crash(id, 0)
		g.pass(3 * time.Second)
	}
	g.same()
	if got := g.members[laggard].replica.quotas.Usage("v"); got != (quota.Usage{Leases: 30, Names: 30}) {
		t.Errorf("v has %+v", got)
	}
}
