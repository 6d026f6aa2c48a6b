package access

import (
	"fmt"
	"slices"
)

// Apply returns the policy after a command. With an error it returns the same policy. Whether the requester may use the
// command is the caller's to check ([Policy.CheckRoot]).
func (p *Policy) Apply(c Command) (*Policy, error) {
	next := *p.orInitial()
	changed, err := next.execute(c)
	if err != nil || !changed {
		return p, err
	}
	if next.size > MaxSize && next.size > p.Size() {
		return p, ErrTooLarge
	}
	return &next, nil
}

// execute carries a command out on a policy that shares its users and roles with others. It reports whether something changed.
func (p *Policy) execute(c Command) (changed bool, err error) {
	switch c := c.(type) {
	case Enable:
		return p.turnOn()
	case Disable:
		return p.turnOff()
	case Login:
		return false, p.checkLogin(c)
	case SetQuota:
		return p.changeQuota(c)
	case AddUser:
		return p.insertUser(c)
	case DeleteUser:
		return p.removeUser(c)
	case ChangePassword:
		return p.setPassword(c)
	case GrantRole:
		return p.attachRole(c)
	case RevokeRole:
		return p.detachRole(c)
	case AddRole:
		return p.insertRole(c)
	case DeleteRole:
		return p.removeRole(c)
	case GrantPermission:
		return p.setPermission(c)
	case RevokePermission:
		return p.dropPermission(c)
	case GrantRight:
		return p.setRight(c)
	case RevokeRight:
		return p.dropRight(c)
	}
	panic(fmt.Sprintf("access: unknown command %T", c))
}

func (p *Policy) turnOn() (changed bool, err error) {
	if p.enabled {
		return false, nil
	}
	root := p.User(Root)
	switch {
	case root == nil:
		return false, ErrRootUserNotExist
	case !root.isRoot():
		return false, ErrRootRoleNotExist
	}
	p.enabled, p.since = true, p.revision
	return true, nil
}

func (p *Policy) turnOff() (changed bool, err error) {
	if !p.enabled {
		return false, nil
	}
	p.enabled, p.since = false, 0
	p.revision++
	return true, nil
}

func (p *Policy) checkLogin(c Login) error {
	_, revision, err := p.Password(c.User)
	switch {
	case err == ErrNoPasswordUser:
		return ErrAuthFailed
	case err != nil:
		return err
	case c.Revision != revision:
		return ErrOldRevision
	}
	return nil
}

func (p *Policy) insertUser(c AddUser) (changed bool, err error) {
	if c.Name == "" {
		return false, ErrUserEmpty
	}
	if p.User(c.Name) != nil {
		return false, ErrUserAlreadyExist
	}
	p.revision++
	user := &User{Name: c.Name, NoPassword: c.NoPassword, Since: p.revision}
	if !c.NoPassword {
		user.Hash = slices.Clone(c.Hash)
	}
	p.putUser(user)
	return true, nil
}

func (p *Policy) removeUser(c DeleteUser) (changed bool, err error) {
	if p.enabled && c.Name == Root {
		return false, ErrInvalidManagement
	}
	i, ok := p.findUser(c.Name)
	if !ok {
		return false, ErrUserNotFound
	}
	p.revision++
	p.size -= p.users[i].size()
	p.users = slices.Delete(slices.Clone(p.users), i, i+1)
	return true, nil
}

func (p *Policy) setPassword(c ChangePassword) (changed bool, err error) {
	before := p.User(c.Name)
	if before == nil {
		return false, ErrUserNotFound
	}
	p.revision++
	user := *before
	user.Since = p.revision
	if !user.NoPassword {
		user.Hash = slices.Clone(c.Hash)
	}
	p.putUser(&user)
	return true, nil
}

func (p *Policy) attachRole(c GrantRole) (changed bool, err error) {
	before := p.User(c.User)
	if before == nil {
		return false, ErrUserNotFound
	}
	if c.Role != Root && p.Role(c.Role) == nil {
		return false, ErrRoleNotFound
	}
	i, has := slices.BinarySearch(before.Roles, c.Role)
	if has {
		return false, nil
	}
	p.revision++
	user := *before
	user.Roles = slices.Insert(slices.Clone(before.Roles), i, c.Role)
	p.putUser(&user)
	return true, nil
}

func (p *Policy) detachRole(c RevokeRole) (changed bool, err error) {
	if p.enabled && c.User == Root && c.Role == Root {
		return false, ErrInvalidManagement
	}
	before := p.User(c.User)
	if before == nil {
		return false, ErrUserNotFound
	}
	user, had := before.without(c.Role)
	if !had {
		return false, ErrRoleNotGranted
	}
	p.revision++
	p.putUser(user)
	return true, nil
}

// without returns the user without a role, and reports whether the user had it.
func (u *User) without(role string) (*User, bool) {
	i, has := slices.BinarySearch(u.Roles, role)
	if !has {
		return u, false
	}
	next := *u
	next.Roles = slices.Delete(slices.Clone(u.Roles), i, i+1)
	return &next, true
}

// putUser adds a user, or replaces the one of the same name.
func (p *Policy) putUser(user *User) {
	i, there := p.findUser(user.Name)
	users := slices.Clone(p.users)
	if there {
		p.size -= users[i].size()
		users[i] = user
	} else {
		users = slices.Insert(users, i, user)
	}
	p.size += user.size()
	p.users = users
}
