package access

import (
	"fmt"
	"strings"
)

// A Resource is what a quota limits for a user. The numbers are on disks and in requests: none gets a new meaning.
type Resource uint32

// The resources. The members count leases and names together, and watchers and requests each for itself.
const (
	// Leases are the leases that the user was granted, those of claims included.
	Leases Resource = 1
	// Names are the claims of names by the user: those that hold, and those that wait.
	Names Resource = 2
	// Watchers are the user's watchers on one member.
	Watchers Resource = 3
	// Requests are the user's requests per second on one member.
	Requests Resource = 4
)

// Resources are all resources.
var Resources = []Resource{Leases, Names, Watchers, Requests}

// String returns the resource as messages call it.
func (r Resource) String() string {
	switch r {
	case Leases:
		return "leases"
	case Names:
		return "names"
	case Watchers:
		return "watchers"
	case Requests:
		return "requests"
	}
	return "unknown"
}

// The values of a [Limit] that are no number.
const (
	// Unlimited means that there is no limit.
	Unlimited int64 = -1
	// Inherit means that the limit for all users applies. For all users it means that there is no limit.
	Inherit int64 = -2
)

// A Limit is how much of a resource a user may have at most.
type Limit struct {
	Resource Resource
	// Most is at least 0, or [Unlimited] or [Inherit].
	Most int64
}

// A Quota is a user's limits, or those of all users that have none of their own. The zero Quota inherits all.
type Quota struct {
	// most has Most-Inherit for each resource, so that zero is Inherit.
	most [4]int64
}

// Most returns the limit of a resource: at least 0, or [Unlimited] or [Inherit].
func (q Quota) Most(r Resource) int64 {
	if r < Leases || r > Requests {
		return Inherit
	}
	return q.most[r-Leases] + Inherit
}

// With returns the quota with one limit replaced. It returns [ErrInvalidQuota] for a limit that makes no sense.
func (q Quota) With(l Limit) (Quota, error) {
	if l.Resource < Leases || l.Resource > Requests || l.Most < Inherit || l.Most > maxLimit {
		return q, ErrInvalidQuota
	}
	q.most[l.Resource-Leases] = l.Most - Inherit
	return q, nil
}

// maxLimit bounds a limit, so that sums of limits and counts cannot overflow.
const maxLimit = 1 << 60

// String lists the limits that are not inherited.
func (q Quota) String() string {
	var b strings.Builder
	for _, l := range q.Limits() {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if fmt.Fprintf(&b, "%v≤", l.Resource); l.Most == Unlimited {
			b.WriteString("∞")
		} else {
			fmt.Fprint(&b, l.Most)
		}
	}
	return "{" + b.String() + "}"
}

// Limits returns the limits that are not inherited, in order of resources.
func (q Quota) Limits() (limits []Limit) {
	for _, r := range Resources {
		if most := q.Most(r); most != Inherit {
			limits = append(limits, Limit{r, most})
		}
	}
	return limits
}

// Most returns how much of a resource a user may have at most, and [Unlimited] if nothing limits that: access is not enabled,
// or the user has the role root. A name that is no user's, such as that of a deleted user, has the limits of all users.
func (p *Policy) Most(user string, r Resource) int64 {
	if !p.Enabled() || user == "" {
		return Unlimited
	}
	most := Inherit
	if u := p.User(user); u != nil {
		if u.isRoot() {
			return Unlimited
		}
		most = u.Quota.Most(r)
	}
	if most == Inherit {
		most = p.quota.Most(r)
	}
	if most == Inherit {
		return Unlimited
	}
	return most
}

// Quota returns the limits of all users that have none of their own.
func (p *Policy) Quota() Quota { return p.orInitial().quota }

// changeQuota changes limits. It leaves the auth revision as it is, because it withdraws no right.
func (p *Policy) changeQuota(c SetQuota) (changed bool, err error) {
	quota := p.quota
	before := p.User(c.User)
	if c.User != "" {
		if before == nil {
			return false, ErrUserNotFound
		}
		quota = before.Quota
	}
	old := quota
	for _, l := range c.Limits {
		if quota, err = quota.With(l); err != nil {
			return false, err
		}
	}
	if quota == old {
		return false, nil
	}
	if c.User == "" {
		p.quota = quota
		return true, nil
	}
	user := *before
	user.Quota = quota
	p.putUser(&user)
	return true, nil
}

// A QuotaError says that a user has as much of a resource as it may have. It is [ErrQuota].
type QuotaError struct {
	User     string
	Resource Resource
	Most     int64 // ≥ 0
}

// Error says which quota is exhausted, and what to do.
func (e *QuotaError) Error() string {
	const raise = "or have root raise the quota with 'leasekeeper user set-quota'"
	switch e.Resource {
	case Leases:
		return fmt.Sprintf("user %q may own %d leases, and owns as many: end some, %s", e.User, e.Most, raise)
	case Names:
		return fmt.Sprintf("user %q may claim %d names, and holds or waits for as many: release some, %s", e.User, e.Most, raise)
	case Watchers:
		return fmt.Sprintf("user %q may have %d watchers on a member, and has as many on this one: end some, %s", e.User, e.Most, raise)
	}
	return fmt.Sprintf("user %q may send %d requests a second to a member, and sends more to this one: slow down, %s", e.User, e.Most, raise)
}

// Unwrap returns [ErrQuota].
func (e *QuotaError) Unwrap() error { return ErrQuota }
