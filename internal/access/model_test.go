package access

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// texts are the keys of the model. Every border between permissions is one of them, or directly behind one.
var texts = []string{"a", "ab", "b", "ba", "c", "d"}

// universe returns one key for each stretch of keys that no permission of the model can divide.
func universe() []string {
	all := []string{"\x00"}
	for _, t := range texts {
		all = append(all, t, t+"\x00")
	}
	slices.Sort(all)
	return all
}

// model is the policy in the simplest possible form: permissions are sets of keys.
type model struct {
	enabled  bool
	revision uint64
	users    map[string]*modelUser
	roles    map[string]*modelRole
	quota    map[Resource]int64
}

type modelUser struct {
	roles map[string]bool
	bare  bool
	hash  string
	since uint64
	quota map[Resource]int64 // without those that are inherited
}

type modelRole struct {
	kinds  map[[2]string]Kind
	rights map[string]Rights
}

// keysOf returns the keys of the universe from key to end. A range without keys has its first one.
func keysOf(key, end string) (keys []string) {
	for _, k := range append(universe(), key) {
		if k == key || k > key && end != "" && (end == "\x00" || k < end) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (m *model) allows(user, key, end string, kind Kind) bool {
	allowed := make(map[string]bool)
	for role := range m.users[user].roles {
		if m.roles[role] == nil {
			continue
		}
		for at, k := range m.roles[role].kinds {
			if k == kind || k == ReadWrite {
				for _, key := range keysOf(at[0], at[1]) {
					allowed[key] = true
				}
			}
		}
	}
	for _, k := range keysOf(key, end) {
		if !allowed[k] {
			return false
		}
	}
	return true
}

func (m *model) check(c Caller, decide func() bool) error {
	switch u := m.users[c.User]; {
	case !m.enabled:
		return nil
	case c.Revision == 0:
		return ErrUserEmpty
	case c.Revision < m.revision:
		return ErrOldRevision
	case u == nil:
		return ErrPermissionDenied
	case u.roles[Root] || decide():
		return nil
	}
	return ErrPermissionDenied
}

// apply carries out a command that the policy says succeeds or fails. It returns the error that the model expects.
func (m *model) apply(c Command) error {
	switch c := c.(type) {
	case Enable:
		switch u := m.users[Root]; {
		case m.enabled:
		case u == nil:
			return ErrRootUserNotExist
		case !u.roles[Root]:
			return ErrRootRoleNotExist
		}
		m.enabled = true
		return nil
	case Disable:
		if m.enabled {
			m.enabled = false
			m.revision++
		}
		return nil
	case AddUser:
		if m.users[c.Name] != nil {
			return ErrUserAlreadyExist
		}
		m.users[c.Name] = &modelUser{roles: map[string]bool{}, bare: c.NoPassword, since: m.revision + 1}
		if !c.NoPassword {
			m.users[c.Name].hash = string(c.Hash)
		}
	case DeleteUser:
		switch {
		case m.enabled && c.Name == Root:
			return ErrInvalidManagement
		case m.users[c.Name] == nil:
			return ErrUserNotFound
		}
		delete(m.users, c.Name)
	case ChangePassword:
		u := m.users[c.Name]
		if u == nil {
			return ErrUserNotFound
		}
		u.since = m.revision + 1
		if !u.bare {
			u.hash = string(c.Hash)
		}
	case GrantRole:
		switch u := m.users[c.User]; {
		case u == nil:
			return ErrUserNotFound
		case c.Role != Root && m.roles[c.Role] == nil:
			return ErrRoleNotFound
		case u.roles[c.Role]:
			return nil
		default:
			u.roles[c.Role] = true
		}
	case RevokeRole:
		switch u := m.users[c.User]; {
		case m.enabled && c.User == Root && c.Role == Root:
			return ErrInvalidManagement
		case u == nil:
			return ErrUserNotFound
		case !u.roles[c.Role]:
			return ErrRoleNotGranted
		default:
			delete(u.roles, c.Role)
		}
	case SetQuota:
		return m.limit(c)
	default:
		return m.applyToRoles(c)
	}
	m.revision++
	return nil
}

func (m *model) limit(c SetQuota) error {
	quota := &m.quota
	if c.User != "" {
		u := m.users[c.User]
		if u == nil {
			return ErrUserNotFound
		}
		quota = &u.quota
	}
	next := map[Resource]int64{}
	maps.Copy(next, *quota)
	for _, l := range c.Limits {
		if l.Resource == 0 || l.Resource > 4 || l.Most < -2 {
			return ErrInvalidQuota
		}
		if next[l.Resource] = l.Most; l.Most == -2 {
			delete(next, l.Resource)
		}
	}
	*quota = next
	return nil
}

// most returns what a user may have; -1 means that nothing limits it.
func (m *model) most(user string, r Resource) int64 {
	u := m.users[user]
	if !m.enabled || u != nil && u.roles[Root] {
		return -1
	}
	if u != nil {
		if most, set := u.quota[r]; set {
			return most
		}
	}
	if most, set := m.quota[r]; set {
		return most
	}
	return -1
}

func (m *model) applyToRoles(c Command) error {
	switch c := c.(type) {
	case AddRole:
		if m.roles[c.Name] != nil {
			return ErrRoleAlreadyExist
		}
		m.roles[c.Name] = &modelRole{map[[2]string]Kind{}, map[string]Rights{}}
	case DeleteRole:
		switch {
		case m.enabled && c.Name == Root:
			return ErrInvalidManagement
		case m.roles[c.Name] == nil:
			return ErrRoleNotFound
		}
		delete(m.roles, c.Name)
		for _, u := range m.users {
			delete(u.roles, c.Name)
		}
	case GrantPermission:
		switch p := c.Permission; {
		case p.End != "" && p.End != "\x00" && p.End <= p.Key:
			return ErrInvalidManagement
		case m.roles[c.Role] == nil:
			return ErrRoleNotFound
		default:
			m.roles[c.Role].kinds[[2]string{p.Key, p.End}] = p.Kind
		}
	case RevokePermission:
		if m.roles[c.Role] == nil {
			return ErrRoleNotFound
		}
		at := [2]string{c.Key, c.End}
		if _, there := m.roles[c.Role].kinds[at]; !there {
			return ErrPermissionNotGranted
		}
		delete(m.roles[c.Role].kinds, at)
	case GrantRight:
		r := m.roles[c.Role]
		if r == nil {
			return ErrRoleNotFound
		}
		after := r.rights[c.Right.Prefix] | c.Right.Rights
		if r.rights[c.Right.Prefix] == after {
			return nil
		}
		r.rights[c.Right.Prefix] = after
	case RevokeRight:
		r := m.roles[c.Role]
		if r == nil {
			return ErrRoleNotFound
		}
		before, after := r.rights[c.Right.Prefix], Rights(0)
		if c.Right.Rights != 0 {
			after = before &^ c.Right.Rights
		}
		if before == after {
			return ErrRightNotGranted
		}
		if r.rights[c.Right.Prefix] = after; after == 0 {
			delete(r.rights, c.Right.Prefix)
		}
	}
	m.revision++
	return nil
}

func (m *model) rightsOver(user, prefix string) (rights Rights) {
	for role := range m.users[user].roles {
		if r := m.roles[role]; r != nil {
			for p, right := range r.rights {
				if strings.HasPrefix(prefix, p) {
					rights |= right
				}
			}
		}
	}
	return rights
}

// script draws commands and questions.
type script struct{ *rand.Rand }

func pick[T any](s script, from ...T) T { return from[s.IntN(len(from))] }

func (s script) user() string { return pick(s, Root, "u", "v", "nobody") }
func (s script) role() string { return pick(s, Root, "r", "s", "t") }
func (s script) key() string  { return pick(s, texts...) }
func (s script) end() string  { return pick(s, append([]string{"", "\x00"}, texts...)...) }

func (s script) command() Command {
	all := []Command{
		Enable{}, Enable{}, Enable{}, Disable{},
		AddUser{Name: s.user(), Hash: []byte(s.key()), NoPassword: s.IntN(3) == 0},
		AddUser{Name: s.user(), Hash: []byte(s.key())},
		DeleteUser{s.user()}, ChangePassword{s.user(), []byte(s.key())},
		GrantRole{s.user(), s.role()}, GrantRole{s.user(), s.role()}, GrantRole{Root, Root}, RevokeRole{s.user(), s.role()},
		AddRole{s.role()}, AddRole{s.role()}, DeleteRole{s.role()},
		RevokePermission{s.role(), s.key(), s.end()},
		GrantRight{s.role(), Right{pick(s, "", "a", "ab", "b"), Rights(1 + s.IntN(7))}},
		RevokeRight{s.role(), Right{pick(s, "", "a", "ab", "b"), Rights(s.IntN(8))}},
	}
	limit := func() Limit {
		return Limit{pick(s, append(Resources, 0, 5)...), pick[int64](s, -3, -2, -2, -1, 0, 1, 5)}
	}
	for range 3 {
		all = append(all, SetQuota{pick(s, "", s.user()), []Limit{limit()}}, SetQuota{s.user(), []Limit{limit(), limit()}})
	}
	for range 8 {
		all = append(all, GrantPermission{s.role(), &Permission{Kind(s.IntN(4)), s.key(), s.end()}})
	}
	return pick(s, all...)
}

// TestPolicyDecidesAsASetOfKeys compares the policy with the model after every command of random scripts.
func TestPolicyDecidesAsASetOfKeys(t *testing.T) {
	for seed := range uint64(60) {
		s := script{rand.New(rand.NewPCG(seed, 0))}
		m := &model{revision: 1, users: map[string]*modelUser{}, roles: map[string]*modelRole{}}
		var p *Policy
		for step := range 150 {
			c := s.command()
			next, err := p.Apply(c)
			if want := m.apply(c); err != want {
				t.Fatalf("seed %d, step %d: %T%v: %v, the model says %v", seed, step, c, c, err, want)
			}
			if d := Compare(p, next); p != nil && next != p && !d.Rules && len(d.Users)+len(d.Roles) == 0 {
				t.Fatalf("seed %d, step %d: %T%v makes another policy, and changes nothing", seed, step, c, c)
			}
			checkDifference(t, p, next)
			p = next
			if s.IntN(10) == 0 {
				p = Restore(p.Rules(), p.Users(), p.Roles())
			}
			compare(t, fmt.Sprintf("seed %d, step %d after %T%v", seed, step, c, c), s, p, m)
		}
	}
}

// compare asks the policy and the model the same questions.
func compare(t *testing.T, at string, s script, p *Policy, m *model) {
	t.Helper()
	if p.Enabled() != m.enabled || p.Revision() != m.revision {
		t.Fatalf("%s: enabled %v, revision %d; the model has %v and %d", at, p.Enabled(), p.Revision(), m.enabled, m.revision)
	}
	for name, u := range m.users {
		got := p.User(name)
		if roles := slices.Sorted(maps.Keys(u.roles)); got == nil || !slices.Equal(got.Roles, roles) || string(got.Hash) != u.hash || got.NoPassword != u.bare || got.Since != u.since {
			t.Fatalf("%s: user %s is %+v; the model has %+v", at, name, got, u)
		}
	}
	if len(p.Users()) != len(m.users) || len(p.Roles()) != len(m.roles) {
		t.Fatalf("%s: %d users and %d roles; the model has %d and %d", at, len(p.Users()), len(p.Roles()), len(m.users), len(m.roles))
	}
	if again := Restore(p.Rules(), p.Users(), p.Roles()); again.Size() != p.Size() {
		t.Fatalf("%s: size %d, and %d after a restart", at, p.Size(), again.Size())
	}
	for _, r := range Resources {
		if user := s.user(); p.Most(user, r) != m.most(user, r) {
			t.Fatalf("%s: %s may have %d %v; the model says %d", at, user, p.Most(user, r), r, m.most(user, r))
		}
	}
	for range 20 {
		c := Caller{User: s.user(), Revision: pick(s, 0, m.revision-1, m.revision, m.revision, m.revision, m.revision, m.revision+1)}
		key, end, kind := s.key(), s.end(), pick(s, Read, Write)
		err := p.Check(c, []byte(key), []byte(end), kind)
		if want := m.check(c, func() bool { return m.allows(c.User, key, end, kind) }); err != want {
			t.Fatalf("%s: %+v on %q to %q, kind %d: %v, the model says %v\n%s", at, c, key, end, kind, err, want, show(p))
		}
		prefix, rights := pick(s, "", "a", "ab", "abc", "b", "c"), Rights(1+s.IntN(7))
		err = p.CheckNames(c, prefix, rights)
		if want := m.check(c, func() bool { return rights&^m.rightsOver(c.User, prefix) == 0 }); err != want {
			t.Fatalf("%s: %+v over names %q, rights %b: %v, the model says %v\n%s", at, c, prefix, rights, err, want, show(p))
		}
	}
}

// checkDifference requires that the records which Compare names, and no others, differ.
func checkDifference(t *testing.T, before, after *Policy) {
	t.Helper()
	d := Compare(before, after)
	if d.Rules != (before.Rules() != after.Rules()) {
		t.Fatalf("rules %+v and %+v differ: %v", before.Rules(), after.Rules(), d.Rules)
	}
	for _, name := range []string{Root, "u", "v", "nobody"} {
		if differs := fmt.Sprint(before.User(name)) != fmt.Sprint(after.User(name)); differs != slices.Contains(d.Users, name) {
			t.Fatalf("user %s is %+v and %+v, and the difference names %q", name, before.User(name), after.User(name), d.Users)
		}
	}
	for _, name := range []string{Root, "r", "s", "t"} {
		if differs := fmt.Sprint(before.Role(name)) != fmt.Sprint(after.Role(name)); differs && !slices.Contains(d.Roles, name) {
			t.Fatalf("role %s is %+v and %+v, and the difference names %q", name, before.Role(name), after.Role(name), d.Roles)
		}
	}
}

// TestPolicyIsBounded checks that additions end at MaxSize, and that deletions continue.
func TestPolicyIsBounded(t *testing.T) {
	p, err := (*Policy)(nil).Apply(AddRole{"r"})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", MaxSize/8)
	for i := 0; err == nil; i++ {
		if p.Size() > MaxSize {
			t.Fatalf("the policy has %d bytes", p.Size())
		}
		before := p
		if p, err = p.Apply(AddRole{fmt.Sprint(i, long)}); err != nil && p != before {
			t.Fatal("a refused command changed the policy")
		}
	}
	if err != ErrTooLarge {
		t.Fatal(err)
	}
	if p, err = p.Apply(DeleteRole{"0" + long}); err != nil {
		t.Fatal(err)
	}
	if _, err = p.Apply(AddRole{"0" + long}); err != nil {
		t.Fatalf("after a deletion there is room: %v", err)
	}
}

// TestPolicyAboveTheBoundCanShrink checks that users and roles that take more than MaxSize, as those of a snapshot may, can be
// deleted one by one.
func TestPolicyAboveTheBoundCanShrink(t *testing.T) {
	long := strings.Repeat("x", MaxSize/2)
	p := Restore(Rules{}, nil, []*Role{{Name: "a" + long}, {Name: "b" + long}, {Name: "c" + long}, {Name: "d" + long}})
	if same, err := p.Apply(AddRole{"e"}); err != ErrTooLarge || same != p {
		t.Fatalf("an addition above the bound: %v", err)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		var err error
		if p, err = p.Apply(DeleteRole{name + long}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMissingRolePermitsNothing checks users of records which a snapshot of another program may contain: they have a role that
// has no record.
func TestMissingRolePermitsNothing(t *testing.T) {
	for _, missing := range []string{"a", "c"} { // before and behind the other role
		users := []*User{{Name: "u", Roles: []string{missing}}}
		roles := []*Role{{Name: "b", Permissions: []Permission{{Kind: ReadWrite, Key: "k"}}, Rights: []Right{{Prefix: "n", Rights: AllRights}}}}
		p := Restore(Rules{Enabled: true, Revision: 5}, users, roles)
		c := Caller{User: "u", Revision: 5}
		if err := p.Check(c, []byte("k"), nil, Read); err != ErrPermissionDenied {
			t.Errorf("role %s and keys: %v", missing, err)
		}
		if err := p.CheckNames(c, "n", Hold); err != ErrPermissionDenied {
			t.Errorf("role %s and names: %v", missing, err)
		}
	}
}
