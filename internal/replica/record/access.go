package record

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// The second bytes of the keys of [FamilyAccess].
const (
	accessRules  = 'g' // logpb.AccessRules, one key
	accessRights = 'n' // role → logpb.RoleRights
	accessRole   = 'r' // role → logpb.Role
	accessUser   = 'u' // user → logpb.User
)

func accessKey(kind byte, name string) []byte { return append([]byte{FamilyAccess, kind}, name...) }

// PutPolicy writes what differs between two policies, of which the second came from the first.
func PutPolicy(b *pebble.Batch, before, after *access.Policy) {
	d := access.Compare(before, after)
	for _, name := range d.Users {
		if user := after.User(name); user != nil {
			Put(b, accessKey(accessUser, name), userMessage(user))
		} else {
			Remove(b, accessKey(accessUser, name))
		}
	}
	for _, name := range d.Roles {
		putRole(b, name, after.Role(name))
	}
	if d.Rules {
		rules := after.Rules()
		Put(b, accessKey(accessRules, ""), &logpb.AccessRules{Enabled: rules.Enabled, Since: rules.Since, Revision: rules.Revision, Limits: limitMessages(rules.Quota.Limits())})
	}
}

// A PolicyBatch is the policy as the commands of a batch so far left it. The zero PolicyBatch is that of a new cluster.
type PolicyBatch struct {
	Policy *access.Policy
	// Logins are those among the commands, in order.
	Logins []access.Login
}

// Apply applies a command, which is that of the log entry at an index, and writes what it changes. With an error it changes
// nothing. secure returns why access must not be enabled; nil if it may.
func (p *PolicyBatch) Apply(b *pebble.Batch, c access.Command, index uint64, secure func() error) (access.Changed, error) {
	if _, enables := c.(access.Enable); enables {
		if err := secure(); err != nil {
			return access.Changed{}, err
		}
	}
	next, err := p.Policy.Apply(c)
	if err != nil {
		return access.Changed{}, err
	}
	PutPolicy(b, p.Policy, next)
	p.Policy = next
	if login, ok := c.(access.Login); ok {
		p.Logins = append(p.Logins, login)
	}
	return access.Changed{Index: index}, nil
}

// RecoverPolicy publishes the policy that is in a database.
func RecoverPolicy(db pebble.Reader, published *access.Published) error {
	policy, err := LoadPolicy(db)
	if err == nil {
		published.Store(policy)
	}
	return err
}

// putRole writes the records of a role, which is nil if there is none any longer.
func putRole(b *pebble.Batch, name string, role *access.Role) {
	if role == nil {
		Remove(b, accessKey(accessRole, name))
	} else {
		m := &logpb.Role{Name: []byte(name)}
		for _, p := range role.Permissions {
			m.Permissions = append(m.Permissions, &logpb.Permission{Kind: int32(p.Kind), Key: []byte(p.Key), End: []byte(p.End)})
		}
		Put(b, accessKey(accessRole, name), m)
	}
	if role == nil || len(role.Rights) == 0 {
		Remove(b, accessKey(accessRights, name))
		return
	}
	m := &logpb.RoleRights{Role: []byte(name)}
	for _, r := range role.Rights {
		m.Rights = append(m.Rights, &logpb.NameRight{Prefix: []byte(r.Prefix), Rights: uint32(r.Rights)})
	}
	Put(b, accessKey(accessRights, name), m)
}

func userMessage(u *access.User) *logpb.User {
	m := &logpb.User{Name: []byte(u.Name), Hash: u.Hash, NoPassword: u.NoPassword, Since: u.Since, Limits: limitMessages(u.Quota.Limits())}
	for _, role := range u.Roles {
		m.Roles = append(m.Roles, []byte(role))
	}
	return m
}

func limitMessages(limits []access.Limit) (all []*logpb.QuotaLimit) {
	for _, l := range limits {
		all = append(all, &logpb.QuotaLimit{Resource: uint32(l.Resource), Most: l.Most})
	}
	return all
}

func quotaOf(limits []*logpb.QuotaLimit) (q access.Quota, err error) {
	for _, l := range limits {
		if q, err = q.With(access.Limit{Resource: access.Resource(l.Resource), Most: l.Most}); err != nil {
			return q, err
		}
	}
	return q, nil
}

// LoadPolicy reads the policy. It is nil if there is no record.
func LoadPolicy(db pebble.Reader) (*access.Policy, error) {
	it, err := db.NewIter(Family(FamilyAccess))
	if err != nil {
		return nil, err
	}
	l := policyLoader{roles: make(map[string]*access.Role), known: make(map[string]bool)}
	for it.First(); it.Valid() && err == nil; it.Next() {
		if err = l.take(it.Key(), it.Value()); err != nil {
			err = &DamagedError{What: fmt.Sprintf("record %x of users and roles cannot be read", it.Key()), Err: err}
		}
	}
	if err = errors.Join(err, it.Error(), it.Close()); err != nil || !l.found {
		return nil, err
	}
	roles := make([]*access.Role, 0, len(l.roles))
	for _, role := range l.roles { // order: Restore sorts them
		if !l.known[role.Name] {
			return nil, &DamagedError{What: fmt.Sprintf("role %q has rights over names and no record", role.Name)}
		}
		roles = append(roles, role)
	}
	return access.Restore(l.rules, l.users, roles), nil
}

// policyLoader collects the records of a policy.
type policyLoader struct {
	found bool
	rules access.Rules
	users []*access.User
	roles map[string]*access.Role
	known map[string]bool // the roles with a record of their own
}

func (l *policyLoader) take(key, value []byte) error {
	l.found = true
	if len(key) < 2 {
		return errors.New("its key is too short")
	}
	name := key[2:]
	switch key[1] {
	case accessRules:
		m := new(logpb.AccessRules)
		if err := proto.Unmarshal(value, m); err != nil {
			return err
		}
		quota, err := quotaOf(m.Limits)
		l.rules = access.Rules{Enabled: m.Enabled, Since: m.Since, Revision: m.Revision, Quota: quota}
		return err
	case accessUser:
		m := new(logpb.User)
		if err := unmarshal(value, m, m.GetName, name); err != nil {
			return err
		}
		quota, err := quotaOf(m.Limits)
		user := &access.User{Name: string(m.Name), Hash: m.Hash, NoPassword: m.NoPassword, Since: m.Since, Quota: quota}
		for _, role := range m.Roles {
			user.Roles = append(user.Roles, string(role))
		}
		l.users = append(l.users, user)
		return err
	case accessRole:
		m := new(logpb.Role)
		if err := unmarshal(value, m, m.GetName, name); err != nil {
			return err
		}
		role := l.role(string(name))
		for _, p := range m.Permissions {
			role.Permissions = append(role.Permissions, access.Permission{Kind: access.Kind(p.Kind), Key: string(p.Key), End: string(p.End)})
		}
		l.known[role.Name] = true
		return nil
	case accessRights:
		m := new(logpb.RoleRights)
		if err := unmarshal(value, m, m.GetRole, name); err != nil {
			return err
		}
		role := l.role(string(name))
		for _, r := range m.Rights {
			role.Rights = append(role.Rights, access.Right{Prefix: string(r.Prefix), Rights: access.Rights(r.Rights)})
		}
		return nil
	}
	return errors.New("it is of a kind that this program does not know")
}

// role returns the role of a name, whose records come one after the other.
func (l *policyLoader) role(name string) *access.Role {
	if l.roles[name] == nil {
		l.roles[name] = &access.Role{Name: name}
	}
	return l.roles[name]
}

// unmarshal reads a record whose name must be that in its key.
func unmarshal(value []byte, m proto.Message, name func() []byte, want []byte) error {
	if err := proto.Unmarshal(value, m); err != nil {
		return err
	}
	if !bytes.Equal(name(), want) {
		return fmt.Errorf("it is not where its key says: it is that of %q", name())
	}
	return nil
}
