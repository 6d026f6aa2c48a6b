package access

import (
	"cmp"
	"slices"
)

func (p *Policy) insertRole(c AddRole) (changed bool, err error) {
	if c.Name == "" {
		return false, ErrRoleEmpty
	}
	if p.Role(c.Name) != nil {
		return false, ErrRoleAlreadyExist
	}
	p.revision++
	p.putRole(Role{Name: c.Name})
	return true, nil
}

func (p *Policy) removeRole(c DeleteRole) (changed bool, err error) {
	if p.enabled && c.Name == Root {
		return false, ErrInvalidManagement
	}
	i, ok := p.findRole(c.Name)
	if !ok {
		return false, ErrRoleNotFound
	}
	p.revision++
	p.size -= p.roles[i].size()
	p.roles = slices.Delete(slices.Clone(p.roles), i, i+1)
	users := slices.Clone(p.users)
	for i, user := range users {
		var had bool
		if users[i], had = user.without(c.Name); had {
			p.size += users[i].size() - user.size()
		}
	}
	p.users = users
	return true, nil
}

func (p *Policy) setPermission(c GrantPermission) (changed bool, err error) {
	if c.Permission == nil {
		return false, ErrPermissionNotGiven
	}
	granted := *c.Permission
	if !validRange(granted.Key, granted.End) {
		return false, ErrInvalidManagement
	}
	before := p.Role(c.Role)
	if before == nil {
		return false, ErrRoleNotFound
	}
	p.revision++
	next := *before
	next.Permissions = slices.Clone(before.Permissions)
	i, there := next.findPermission(granted.Key, granted.End)
	if there {
		next.Permissions[i] = granted
	} else {
		next.Permissions = slices.Insert(next.Permissions, i, granted)
	}
	p.putRole(next)
	return true, nil
}

func (p *Policy) dropPermission(c RevokePermission) (changed bool, err error) {
	before := p.Role(c.Role)
	if before == nil {
		return false, ErrRoleNotFound
	}
	i, there := before.findPermission(c.Key, c.End)
	if !there {
		return false, ErrPermissionNotGranted
	}
	p.revision++
	next := *before
	next.Permissions = slices.Delete(slices.Clone(before.Permissions), i, i+1)
	p.putRole(next)
	return true, nil
}

func (p *Policy) setRight(c GrantRight) (changed bool, err error) {
	if c.Right.Rights == 0 || c.Right.Rights&^AllRights != 0 {
		return false, ErrPermissionNotGiven
	}
	before := p.Role(c.Role)
	if before == nil {
		return false, ErrRoleNotFound
	}
	i, there := before.findRight(c.Right.Prefix)
	if there && c.Right.Rights&^before.Rights[i].Rights == 0 {
		return false, nil
	}
	p.revision++
	next := *before
	next.Rights = slices.Clone(before.Rights)
	if there {
		next.Rights[i].Rights |= c.Right.Rights
	} else {
		next.Rights = slices.Insert(next.Rights, i, c.Right)
	}
	p.putRole(next)
	return true, nil
}

func (p *Policy) dropRight(c RevokeRight) (changed bool, err error) {
	before := p.Role(c.Role)
	if before == nil {
		return false, ErrRoleNotFound
	}
	i, there := before.findRight(c.Right.Prefix)
	taken := c.Right.Rights
	if taken == 0 {
		taken = ^Rights(0)
	}
	if !there || before.Rights[i].Rights&taken == 0 {
		return false, ErrRightNotGranted
	}
	p.revision++
	next := *before
	next.Rights = slices.Clone(before.Rights)
	if next.Rights[i].Rights &^= taken; next.Rights[i].Rights == 0 {
		next.Rights = slices.Delete(next.Rights, i, i+1)
	}
	p.putRole(next)
	return true, nil
}

// findPermission returns the place of the permission for a range, and whether it is there. The place of a new one is after
// all with the same key.
func (r *Role) findPermission(key, end string) (int, bool) {
	i, _ := slices.BinarySearchFunc(r.Permissions, key, func(p Permission, key string) int { return cmp.Compare(p.Key, key) })
	for ; i < len(r.Permissions) && r.Permissions[i].Key == key; i++ {
		if r.Permissions[i].End == end {
			return i, true
		}
	}
	return i, false
}

// findRight returns the place of the rights over a prefix, and whether they are there.
func (r *Role) findRight(prefix string) (int, bool) {
	return slices.BinarySearchFunc(r.Rights, prefix, func(right Right, prefix string) int { return cmp.Compare(right.Prefix, prefix) })
}

// putRole adds a role, or replaces the one of the same name.
func (p *Policy) putRole(r Role) {
	next := compile(r)
	i, there := p.findRole(r.Name)
	roles := slices.Clone(p.roles)
	if there {
		p.size -= roles[i].size()
		roles[i] = next
	} else {
		roles = slices.Insert(roles, i, next)
	}
	p.size += next.size()
	p.roles = roles
}

// compile prepares a role for verdicts.
func compile(r Role) *compiledRole {
	return &compiledRole{Role: r, read: rangesOf(r.Permissions, Read), write: rangesOf(r.Permissions, Write)}
}

// The memory of records besides their texts, roughly, in bytes.
const (
	recordOverhead = 200
	entryOverhead  = 64
)

// size returns roughly how many bytes of memory a user takes.
func (u *User) size() int {
	size := recordOverhead + len(u.Name) + len(u.Hash)
	for _, role := range u.Roles {
		size += entryOverhead + len(role)
	}
	return size
}

// size returns roughly how many bytes of memory a role takes.
func (r *Role) size() int {
	size := recordOverhead + len(r.Name)
	for _, p := range r.Permissions {
		size += 3 * (entryOverhead + len(p.Key) + len(p.End)) // the intervals of verdicts have the keys as well
	}
	for _, right := range r.Rights {
		size += entryOverhead + len(right.Prefix)
	}
	return size
}
