package access

import (
	"cmp"
	"slices"
	"strings"
)

// A Policy is the users, the roles and the rules of one moment. It is immutable, so goroutines may share it. A nil Policy is
// that of a new cluster: no users, no roles, access not enabled.
type Policy struct {
	enabled bool
	// since is the auth revision at which access was enabled last; 0 if it is not enabled.
	since    uint64
	revision uint64          // ≥ 1
	users    []*User         // sorted by name
	roles    []*compiledRole // sorted by name
	size     int             // of users and roles; see Size
	quota    Quota           // of all users that have none of their own
}

// compiledRole is a role as verdicts use it. It is immutable.
type compiledRole struct {
	Role
	read, write ranges
}

// firstRevision is the auth revision of a new cluster, as in etcd.
const firstRevision = 1

var initial = &Policy{revision: firstRevision}

// orInitial returns the policy of a new cluster in place of nil.
func (p *Policy) orInitial() *Policy {
	if p == nil {
		return initial
	}
	return p
}

// Enabled reports whether requests are checked.
func (p *Policy) Enabled() bool { return p != nil && p.enabled }

// Revision returns the auth revision. It begins with 1 and never falls.
func (p *Policy) Revision() uint64 { return p.orInitial().revision }

// Size returns roughly how many bytes of memory the users and roles take.
func (p *Policy) Size() int { return p.orInitial().size }

// User returns a user's record; nil if there is no such user.
func (p *Policy) User(name string) *User {
	if i, ok := p.orInitial().findUser(name); ok {
		return p.users[i]
	}
	return nil
}

// Role returns a role's record; nil if there is no such role. The record of the role root need not exist, and its
// permissions do not matter.
func (p *Policy) Role(name string) *Role {
	if i, ok := p.orInitial().findRole(name); ok {
		return &p.roles[i].Role
	}
	return nil
}

// Users returns the records of all users, sorted by name.
func (p *Policy) Users() []*User { return slices.Clone(p.orInitial().users) }

// Roles returns the records of all roles, sorted by name.
func (p *Policy) Roles() []*Role {
	all := make([]*Role, len(p.orInitial().roles))
	for i := range all {
		all[i] = &p.roles[i].Role
	}
	return all
}

// Password returns the hash with which a user's password is to be compared, and the auth revision for [Login]. The error is
// [ErrNotEnabled], [ErrAuthFailed] or [ErrNoPasswordUser].
func (p *Policy) Password(user string) (hash []byte, revision uint64, err error) {
	if !p.Enabled() {
		return nil, 0, ErrNotEnabled
	}
	u := p.User(user)
	switch {
	case u == nil:
		return nil, 0, ErrAuthFailed
	case u.NoPassword:
		return nil, 0, ErrNoPasswordUser
	}
	return u.Hash, p.revision, nil
}

// Holds reports whether a simple token still holds that a user got by a [Login] at an auth revision. It does not if since
// then the user was deleted or added again, the password was changed, or access was disabled.
func (p *Policy) Holds(user string, issued uint64) bool {
	if !p.Enabled() || issued < p.since {
		return false
	}
	u := p.User(user)
	return u != nil && u.Since <= issued
}

func (p *Policy) findUser(name string) (int, bool) {
	return slices.BinarySearchFunc(p.users, name, func(u *User, name string) int { return cmp.Compare(u.Name, name) })
}

func (p *Policy) findRole(name string) (int, bool) {
	return slices.BinarySearchFunc(p.roles, name, func(r *compiledRole, name string) int { return cmp.Compare(r.Name, name) })
}

// isRoot reports whether the user has the role root.
func (u *User) isRoot() bool {
	_, ok := slices.BinarySearch(u.Roles, Root)
	return ok
}

// Check decides whether a caller may read or write the keys from key to end, which has the meaning of [Permission.End]. The
// kind is [Read] or [Write]. The error is [ErrUserEmpty], [ErrOldRevision] or [ErrPermissionDenied].
func (p *Policy) Check(c Caller, key, end []byte, kind Kind) error {
	user, err := p.identify(c)
	if user == nil || err != nil {
		return err
	}
	if p.allowsKeys(user, key, end, kind) {
		return nil
	}
	return ErrPermissionDenied
}

// CheckName decides whether a caller has all of some rights over one name. The errors are those of [Policy.Check].
func (p *Policy) CheckName(c Caller, name string, rights Rights) error {
	// A right over all names that begin with a name's text is a right over the name, and the reverse.
	return p.CheckNames(c, name, rights)
}

// CheckNames decides whether a caller has all of some rights over every name that begins with a prefix. The errors are
// those of [Policy.Check].
func (p *Policy) CheckNames(c Caller, prefix string, rights Rights) error {
	user, err := p.identify(c)
	if user == nil || err != nil {
		return err
	}
	if rights&^p.rightsOver(user, prefix) == 0 {
		return nil
	}
	return ErrPermissionDenied
}

// CheckRoot decides whether a caller has the role root. As in etcd it does not look at the caller's auth revision. The error
// is [ErrUserEmpty], [ErrUserNotFound] or [ErrPermissionDenied].
func (p *Policy) CheckRoot(c Caller) error {
	if !p.Enabled() {
		return nil
	}
	if c.User == "" {
		return ErrUserEmpty
	}
	user := p.User(c.User)
	switch {
	case user == nil:
		return ErrUserNotFound
	case !user.isRoot():
		return ErrPermissionDenied
	}
	return nil
}

// CheckIdentified decides about requests that need no permission: the caller must be a user, whatever its auth revision. The
// error is [ErrUserEmpty] or [ErrPermissionDenied].
func (p *Policy) CheckIdentified(c Caller) error {
	switch {
	case !p.Enabled():
		return nil
	case c.User == "":
		return ErrUserEmpty
	case p.User(c.User) == nil:
		return ErrPermissionDenied
	}
	return nil
}

// identify returns the user of a caller whose rights decide. The user is nil without an error if the caller may do
// everything.
func (p *Policy) identify(c Caller) (*User, error) {
	if !p.Enabled() {
		return nil, nil
	}
	switch {
	case c.Revision == 0:
		return nil, ErrUserEmpty
	case c.Revision < p.revision:
		return nil, ErrOldRevision
	}
	user := p.User(c.User)
	switch {
	case user == nil:
		return nil, ErrPermissionDenied
	case user.isRoot():
		return nil, nil
	}
	return user, nil
}

// rightsOver returns the rights that a user has over every name that begins with a prefix.
func (p *Policy) rightsOver(user *User, prefix string) (rights Rights) {
	for _, name := range user.Roles {
		role := p.Role(name)
		if role == nil {
			continue
		}
		for _, right := range role.Rights {
			if strings.HasPrefix(prefix, right.Prefix) {
				rights |= right.Rights
			}
		}
	}
	return rights
}
