package quota

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Ledger knows the owners of leases, and how much each user owns. The zero Ledger has no leases. It is not safe for concurrent
// use.
type Ledger struct {
	leases map[lessor.ID]owned
	users  map[string]*account // only users that own a lease
}

// owned is a lease with an owner.
type owned struct {
	owner *account
	claim bool // a claim of a name made the lease
}

// account is what a user owns.
type account struct {
	user           string
	leases, claims int64 // claims ≤ leases
}

// Own notes that a user owns a new lease, and whether a claim of a name made it. It does nothing if the user is empty. It
// panics if the lease has an owner already.
func (l *Ledger) Own(id lessor.ID, user string, claim bool) {
	if user == "" {
		return
	}
	if was, is := l.leases[id]; is {
		panic(fmt.Sprintf("quota: lease %x of %q is to belong to %q", uint64(id), was.owner.user, user))
	}
	if l.leases == nil {
		l.leases, l.users = make(map[lessor.ID]owned), make(map[string]*account)
	}
	a := l.users[user]
	if a == nil {
		a = &account{user: user}
		l.users[user] = a
	}
	a.add(claim, 1)
	l.leases[id] = owned{a, claim}
}

// End notes that a lease has ended. It does nothing about a lease without an owner.
func (l *Ledger) End(id lessor.ID) {
	e, is := l.leases[id]
	if !is {
		return
	}
	delete(l.leases, id)
	e.owner.add(e.claim, -1)
	if e.owner.leases == 0 {
		delete(l.users, e.owner.user)
	}
}

func (a *account) add(claim bool, n int64) {
	a.leases += n
	if claim {
		a.claims += n
	}
}

// Owner returns the user that owns a lease; empty if nobody does.
func (l *Ledger) Owner(id lessor.ID) string {
	if e, is := l.leases[id]; is {
		return e.owner.user
	}
	return ""
}

// Len returns the number of leases with an owner.
func (l *Ledger) Len() int { return len(l.leases) }

// Usage is how much a user owns.
type Usage struct{ Leases, Names int64 }

// Usage returns how much a user owns.
func (l *Ledger) Usage(user string) Usage {
	if a := l.users[user]; a != nil {
		return Usage{a.leases, a.claims}
	}
	return Usage{}
}

// Check returns an [access.QuotaError] if a command would give its caller more than the caller's quota allows. A lease that
// exists is made no second time: its claim or grant is answered for what it is.
func (l *Ledger) Check(p *access.Policy, by access.Caller, c entry.Command, leases *lessor.Lessor) error {
	id, makes := entry.LeaseMade(c)
	if !makes || !p.Enabled() {
		return nil
	}
	if _, exists := leases.Lookup(id); exists {
		return nil
	}
	_, claims := c.(ownership.Claim)
	return l.allows(p, by.User, claims)
}

// allows returns an error if a user may not have one more lease, or with claim set one more claim of a name.
func (l *Ledger) allows(p *access.Policy, user string, claim bool) error {
	has := l.Usage(user)
	if most := p.Most(user, access.Leases); most >= 0 && has.Leases >= most {
		return &access.QuotaError{User: user, Resource: access.Leases, Most: most}
	}
	if !claim {
		return nil
	}
	if most := p.Most(user, access.Names); most >= 0 && has.Names >= most {
		return &access.QuotaError{User: user, Resource: access.Names, Most: most}
	}
	return nil
}
