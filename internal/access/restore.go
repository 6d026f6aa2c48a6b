package access

import (
	"cmp"
	"slices"
)

// Rules are the record of a policy besides its users and roles.
type Rules struct {
	Enabled bool
	// Since is the auth revision at which access was enabled last; 0 if it is not enabled.
	Since uint64
	// Revision is the auth revision. 0 counts as that of a new cluster.
	Revision uint64
	// Quota is the limits of all users that have none of their own.
	Quota Quota
}

// Rules returns the policy without its users and roles.
func (p *Policy) Rules() Rules {
	p = p.orInitial()
	return Rules{Enabled: p.enabled, Since: p.since, Revision: p.revision, Quota: p.quota}
}

// Restore makes a policy of its records, and keeps them. The lists inside the records have the order that [User] and [Role]
// demand.
func Restore(rules Rules, users []*User, roles []*Role) *Policy {
	p := &Policy{enabled: rules.Enabled, since: rules.Since, revision: max(rules.Revision, firstRevision), quota: rules.Quota}
	p.users = slices.SortedFunc(slices.Values(users), func(a, b *User) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range roles {
		p.roles = append(p.roles, compile(*r))
	}
	slices.SortFunc(p.roles, func(a, b *compiledRole) int { return cmp.Compare(a.Name, b.Name) })
	for _, u := range p.users {
		p.size += u.size()
	}
	for _, r := range p.roles {
		p.size += r.size()
	}
	return p
}

// A Difference is what differs between two policies: the names of the users and roles that were added, changed or deleted,
// sorted. Rules is set if the rules differ.
type Difference struct {
	Users, Roles []string
	Rules        bool
}

// Compare returns what differs between two policies of which the second came from the first by [Policy.Apply].
func Compare(before, after *Policy) Difference {
	before, after = before.orInitial(), after.orInitial()
	return Difference{
		Users: differing(before.users, after.users, func(u *User) string { return u.Name }),
		Roles: differing(before.roles, after.roles, func(r *compiledRole) string { return r.Name }),
		Rules: before.Rules() != after.Rules(),
	}
}

// differing returns the names of the records that are not in both lists as the same pointer. The lists are sorted by name.
func differing[T any](before, after []*T, name func(*T) string) (names []string) {
	for len(before)+len(after) > 0 {
		switch {
		case len(before) == 0 || len(after) > 0 && name(after[0]) < name(before[0]):
			names, after = append(names, name(after[0])), after[1:]
		case len(after) == 0 || name(before[0]) < name(after[0]):
			names, before = append(names, name(before[0])), before[1:]
		default:
			if before[0] != after[0] {
				names = append(names, name(after[0]))
			}
			before, after = before[1:], after[1:]
		}
	}
	return names
}
