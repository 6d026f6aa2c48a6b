package quota

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// list is the model of a Ledger: a list of leases that is counted again for each question.
type list []lease

type lease struct {
	id    lessor.ID
	user  string
	claim bool
}

func (l list) count(user string) (u Usage) {
	for _, o := range l {
		if o.user == user {
			u.Leases++
			if o.claim {
				u.Names++
			}
		}
	}
	return u
}

// may says whether a user may have one more.
func (l list) may(p *access.Policy, user string, claim bool) bool {
	has, leases, names := l.count(user), p.Most(user, access.Leases), p.Most(user, access.Names)
	return (leases < 0 || has.Leases < leases) && (!claim || names < 0 || has.Names < names)
}

func (l list) without(id lessor.ID) (rest list) {
	for _, o := range l {
		if o.id != id {
			rest = append(rest, o)
		}
	}
	return rest
}

// policy has users with all kinds of quotas.
func policy(t *testing.T) (p *access.Policy) {
	limits := func(leases, names int64) []access.Limit {
		return []access.Limit{{Resource: access.Leases, Most: leases}, {Resource: access.Names, Most: names}}
	}
	for _, c := range []access.Command{
		access.AddUser{Name: "root"}, access.GrantRole{User: "root", Role: "root"}, access.AddUser{Name: "u"}, access.AddUser{Name: "v"},
		access.AddUser{Name: "w"}, access.SetQuota{Limits: limits(5, 3)}, access.SetQuota{User: "u", Limits: limits(2, access.Inherit)},
		access.SetQuota{User: "v", Limits: limits(access.Unlimited, 0)}, access.SetQuota{User: "root", Limits: limits(0, 0)}, access.Enable{},
	} {
		var err error
		if p, err = p.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestLedgerCountsAsAList compares a ledger with the list after every change of random scripts.
func TestLedgerCountsAsAList(t *testing.T) {
	p := policy(t)
	users := []string{"root", "u", "v", "w", "deleted", ""}
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		var l Ledger
		var model list
		for step := range 200 {
			id := lessor.ID(1 + random.IntN(20))
			before := len(model)
			if model = model.without(id); len(model) < before || random.IntN(4) == 0 {
				l.End(id)
			} else {
				o := lease{id, users[random.IntN(len(users))], random.IntN(2) == 0}
				l.Own(o.id, o.user, o.claim)
				model = append(model, o)
			}
			at := fmt.Sprintf("seed %d, step %d", seed, step)
			withOwner := 0
			for _, o := range model {
				if l.Owner(o.id) != o.user {
					t.Fatalf("%s: lease %d belongs to %q, not %q", at, o.id, l.Owner(o.id), o.user)
				}
				if o.user != "" {
					withOwner++
				}
			}
			if l.Len() != withOwner {
				t.Fatalf("%s: %d leases have an owner, not %d", at, l.Len(), withOwner)
			}
			for _, user := range users[:5] {
				if l.Usage(user) != model.count(user) {
					t.Fatalf("%s: %s has %+v, the list %+v", at, user, l.Usage(user), model.count(user))
				}
				for _, claim := range []bool{false, true} {
					err := l.allows(p, user, claim)
					if (err == nil) != model.may(p, user, claim) || err != nil && !errors.Is(err, access.ErrQuota) {
						t.Fatalf("%s: one more of %s, a claim: %v: %v, with %+v", at, user, claim, err, l.Usage(user))
					}
				}
			}
		}
		for _, o := range model {
			l.End(o.id)
		}
		if len(l.leases)+len(l.users) != 0 {
			t.Fatalf("seed %d: an empty ledger has %v and %v", seed, l.leases, l.users)
		}
	}
}

// A lease has one owner.
func TestLeaseIsOwnedOnce(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a lease has two owners")
		}
	}()
	var l Ledger
	l.Own(1, "u", false)
	l.Own(1, "v", false)
}

// The text says which quota is exhausted.
func TestErrorNamesTheQuota(t *testing.T) {
	var l Ledger
	l.Own(1, "u", false)
	l.Own(2, "u", true)
	want := `user "u" may own 2 leases, and owns as many: end some, or have root raise the quota with 'leasekeeper user set-quota'`
	if err := l.allows(policy(t), "u", true); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	want = `user "v" may claim 0 names, and holds or waits for as many: release some, or have root raise the quota with 'leasekeeper user set-quota'`
	if err := l.allows(policy(t), "v", true); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
