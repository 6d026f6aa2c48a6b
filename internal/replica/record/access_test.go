package record

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// describe shows every record of a policy.
func describe(p *access.Policy) string {
	text := fmt.Sprintf("%+v\n", p.Rules())
	for _, u := range p.Users() {
		text += fmt.Sprintf("%+v\n", *u)
	}
	for _, r := range p.Roles() {
		text += fmt.Sprintf("%+v\n", *r)
	}
	return text
}

// After each change the records are those of the policy, and what was deleted leaves none.
func TestPolicyIsStoredChangeByChange(t *testing.T) {
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if p, err := LoadPolicy(db); p != nil || err != nil {
		t.Fatalf("an empty database has the policy %+v, %v", p, err)
	}
	var policy *access.Policy
	for _, c := range []access.Command{
		access.AddUser{Name: access.Root, Hash: []byte("H")}, access.GrantRole{User: access.Root, Role: access.Root},
		access.AddUser{Name: "u", NoPassword: true}, access.AddRole{Name: "r"}, access.AddRole{Name: "s"},
		access.GrantPermission{Role: "r", Permission: &access.Permission{Kind: access.ReadWrite, Key: "k", End: "\x00"}},
		access.GrantPermission{Role: "r", Permission: &access.Permission{Key: "k"}},
		access.GrantRight{Role: "r", Right: access.Right{Prefix: "n", Rights: access.Hold | access.Watch}},
		access.GrantRight{Role: "s", Right: access.Right{Rights: access.Administer}},
		access.GrantRole{User: "u", Role: "s"}, access.GrantRole{User: "u", Role: "r"}, access.Enable{},
		access.SetQuota{User: "u", Limits: []access.Limit{{Resource: access.Leases, Most: 7}, {Resource: access.Names, Most: access.Unlimited}}},
		access.SetQuota{Limits: []access.Limit{{Resource: access.Requests, Most: 0}, {Resource: access.Watchers, Most: 3}}},
		access.SetQuota{User: "u", Limits: []access.Limit{{Resource: access.Leases, Most: access.Inherit}}},
		access.ChangePassword{Name: access.Root, Hash: []byte("I")}, access.RevokeRight{Role: "r", Right: access.Right{Prefix: "n"}},
		access.RevokePermission{Role: "r", Key: "k"}, access.DeleteRole{Name: "s"}, access.DeleteUser{Name: "u"}, access.Disable{},
		access.DeleteUser{Name: access.Root}, access.DeleteRole{Name: "r"},
	} {
		next, err := policy.Apply(c)
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		batch := db.NewBatch()
		PutPolicy(batch, policy, next)
		if err := batch.Commit(pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		policy = next
		if got, err := LoadPolicy(db); err != nil || describe(got) != describe(policy) {
			t.Fatalf("after %T%v: %v\n%s, not\n%s", c, c, err, describe(got), describe(policy))
		}
	}
	it, err := db.NewIter(Family(FamilyAccess))
	if err != nil {
		t.Fatal(err)
	}
	var left [][]byte
	for it.First(); it.Valid(); it.Next() {
		left = append(left, bytes.Clone(it.Key()))
	}
	if err := it.Close(); err != nil || len(left) != 1 || !slices.Equal(left[0], accessKey(accessRules, "")) {
		t.Errorf("left are %q, %v", left, err)
	}
}

// A record that cannot be understood is damage: without it users would have other rights.
func TestDamagedPolicyIsRefused(t *testing.T) {
	text := func(r Record) []byte { return r.Value }
	for name, r := range map[string]Record{
		"bytes that are no message":  {accessKey(accessUser, "u"), []byte{1}},
		"a senseless quota":          {accessKey(accessUser, "u"), text(New(nil, &logpb.User{Name: []byte("u"), Limits: []*logpb.QuotaLimit{{Resource: 9}}}))},
		"no rules":                   {accessKey(accessRules, ""), []byte{1}},
		"a role that is no message":  {accessKey(accessRole, "r"), []byte{1}},
		"rights that are no message": {accessKey(accessRights, "r"), []byte{1}},
		"a user elsewhere":           {accessKey(accessUser, "u"), text(New(nil, &logpb.User{Name: []byte("v")}))},
		"a role elsewhere":           {accessKey(accessRole, "r"), text(New(nil, &logpb.Role{Name: []byte("s")}))},
		"rights elsewhere":           {accessKey(accessRights, "r"), text(New(nil, &logpb.RoleRights{Role: []byte("s")}))},
		"rights without a role":      {accessKey(accessRights, "r"), text(New(nil, &logpb.RoleRights{Role: []byte("r")}))},
		"a kind of a later version":  {[]byte{FamilyAccess, 'z'}, nil},
		"no kind":                    {[]byte{FamilyAccess}, nil},
	} {
		db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Set(r.Key, r.Value, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		_, err = LoadPolicy(db)
		if damage := (*DamagedError)(nil); !errors.As(err, &damage) {
			t.Errorf("%s: %v", name, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
