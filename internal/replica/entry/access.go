package entry

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// accessMessage is messageOf for changes of users and roles.
func accessMessage(c access.Command) *logpb.AccessChange {
	switch c := c.(type) {
	case access.Enable:
		return &logpb.AccessChange{Change: &logpb.AccessChange_Enable_{Enable: new(logpb.AccessChange_Enable)}}
	case access.Disable:
		return &logpb.AccessChange{Change: &logpb.AccessChange_Disable_{Disable: new(logpb.AccessChange_Disable)}}
	case access.Login:
		return &logpb.AccessChange{Change: &logpb.AccessChange_Login_{Login: &logpb.AccessChange_Login{
			User: []byte(c.User), Digest: c.Digest[:], Revision: c.Revision,
		}}}
	case access.AddUser:
		return &logpb.AccessChange{Change: &logpb.AccessChange_AddUser_{AddUser: &logpb.AccessChange_AddUser{
			Name: []byte(c.Name), Hash: c.Hash, NoPassword: c.NoPassword,
		}}}
	case access.DeleteUser:
		return &logpb.AccessChange{Change: &logpb.AccessChange_DeleteUser{DeleteUser: &logpb.AccessChange_UserName{Name: []byte(c.Name)}}}
	case access.ChangePassword:
		return &logpb.AccessChange{Change: &logpb.AccessChange_ChangePassword{ChangePassword: &logpb.AccessChange_AddUser{
			Name: []byte(c.Name), Hash: c.Hash,
		}}}
	case access.GrantRole:
		return &logpb.AccessChange{Change: &logpb.AccessChange_GrantRole{GrantRole: roleOfUser(c.User, c.Role)}}
	case access.RevokeRole:
		return &logpb.AccessChange{Change: &logpb.AccessChange_RevokeRole{RevokeRole: roleOfUser(c.User, c.Role)}}
	case access.SetQuota:
		m := &logpb.AccessChange_QuotaOfUser{User: []byte(c.User)}
		for _, l := range c.Limits {
			m.Limits = append(m.Limits, &logpb.QuotaLimit{Resource: uint32(l.Resource), Most: l.Most})
		}
		return &logpb.AccessChange{Change: &logpb.AccessChange_SetQuota{SetQuota: m}}
	}
	return roleMessage(c)
}

// roleMessage is accessMessage for changes of roles.
func roleMessage(c access.Command) *logpb.AccessChange {
	switch c := c.(type) {
	case access.AddRole:
		return &logpb.AccessChange{Change: &logpb.AccessChange_AddRole{AddRole: &logpb.AccessChange_RoleName{Name: []byte(c.Name)}}}
	case access.DeleteRole:
		return &logpb.AccessChange{Change: &logpb.AccessChange_DeleteRole{DeleteRole: &logpb.AccessChange_RoleName{Name: []byte(c.Name)}}}
	case access.GrantPermission:
		m := &logpb.AccessChange_PermissionOfRole{Role: []byte(c.Role)}
		if p := c.Permission; p != nil {
			m.Permission = &logpb.Permission{Kind: int32(p.Kind), Key: []byte(p.Key), End: []byte(p.End)}
		}
		return &logpb.AccessChange{Change: &logpb.AccessChange_GrantPermission{GrantPermission: m}}
	case access.RevokePermission:
		return &logpb.AccessChange{Change: &logpb.AccessChange_RevokePermission{RevokePermission: &logpb.AccessChange_PermissionOfRole{
			Role: []byte(c.Role), Permission: &logpb.Permission{Key: []byte(c.Key), End: []byte(c.End)},
		}}}
	case access.GrantRight:
		return &logpb.AccessChange{Change: &logpb.AccessChange_GrantRight{GrantRight: rightOfRole(c.Role, c.Right)}}
	case access.RevokeRight:
		return &logpb.AccessChange{Change: &logpb.AccessChange_RevokeRight{RevokeRight: rightOfRole(c.Role, c.Right)}}
	}
	panic(fmt.Sprintf("entry: unknown command %T", c))
}

func roleOfUser(user, role string) *logpb.AccessChange_RoleOfUser {
	return &logpb.AccessChange_RoleOfUser{User: []byte(user), Role: []byte(role)}
}

func rightOfRole(role string, right access.Right) *logpb.AccessChange_RightOfRole {
	return &logpb.AccessChange_RightOfRole{
		Role: []byte(role), Right: &logpb.NameRight{Prefix: []byte(right.Prefix), Rights: uint32(right.Rights)},
	}
}

// accessOf is commandOf for changes of users and roles.
func accessOf(m *logpb.AccessChange) Command {
	switch c := m.GetChange().(type) {
	case *logpb.AccessChange_Enable_:
		return access.Enable{}
	case *logpb.AccessChange_Disable_:
		return access.Disable{}
	case *logpb.AccessChange_Login_:
		login := access.Login{User: string(c.Login.GetUser()), Revision: c.Login.GetRevision()}
		if copy(login.Digest[:], c.Login.GetDigest()) == len(login.Digest) {
			return login
		}
	case *logpb.AccessChange_AddUser_:
		return access.AddUser{Name: string(c.AddUser.GetName()), Hash: c.AddUser.GetHash(), NoPassword: c.AddUser.GetNoPassword()}
	case *logpb.AccessChange_DeleteUser:
		return access.DeleteUser{Name: string(c.DeleteUser.GetName())}
	case *logpb.AccessChange_ChangePassword:
		return access.ChangePassword{Name: string(c.ChangePassword.GetName()), Hash: c.ChangePassword.GetHash()}
	case *logpb.AccessChange_GrantRole:
		return access.GrantRole{User: string(c.GrantRole.GetUser()), Role: string(c.GrantRole.GetRole())}
	case *logpb.AccessChange_RevokeRole:
		return access.RevokeRole{User: string(c.RevokeRole.GetUser()), Role: string(c.RevokeRole.GetRole())}
	case *logpb.AccessChange_SetQuota:
		set := access.SetQuota{User: string(c.SetQuota.GetUser())}
		for _, l := range c.SetQuota.GetLimits() {
			set.Limits = append(set.Limits, access.Limit{Resource: access.Resource(l.GetResource()), Most: l.GetMost()})
		}
		return set
	}
	return roleChangeOf(m)
}

// roleChangeOf is accessOf for changes of roles. It returns nil for a change that this version does not know.
func roleChangeOf(m *logpb.AccessChange) Command {
	switch c := m.GetChange().(type) {
	case *logpb.AccessChange_AddRole:
		return access.AddRole{Name: string(c.AddRole.GetName())}
	case *logpb.AccessChange_DeleteRole:
		return access.DeleteRole{Name: string(c.DeleteRole.GetName())}
	case *logpb.AccessChange_GrantPermission:
		granted := access.GrantPermission{Role: string(c.GrantPermission.GetRole())}
		if p := c.GrantPermission.GetPermission(); p != nil {
			granted.Permission = &access.Permission{Kind: access.Kind(p.GetKind()), Key: string(p.GetKey()), End: string(p.GetEnd())}
		}
		return granted
	case *logpb.AccessChange_RevokePermission:
		p := c.RevokePermission.GetPermission()
		return access.RevokePermission{Role: string(c.RevokePermission.GetRole()), Key: string(p.GetKey()), End: string(p.GetEnd())}
	case *logpb.AccessChange_GrantRight:
		return access.GrantRight{Role: string(c.GrantRight.GetRole()), Right: rightOf(c.GrantRight.GetRight())}
	case *logpb.AccessChange_RevokeRight:
		return access.RevokeRight{Role: string(c.RevokeRight.GetRole()), Right: rightOf(c.RevokeRight.GetRight())}
	}
	return nil
}

func rightOf(m *logpb.NameRight) access.Right {
	return access.Right{Prefix: string(m.GetPrefix()), Rights: access.Rights(m.GetRights())}
}
