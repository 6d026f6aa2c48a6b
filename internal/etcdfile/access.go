package etcdfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// exportPolicy writes users, roles and the auth revision. Rights over names have no place in the file.
func exportPolicy(db pebble.Reader, w *Writer) error {
	policy, err := record.LoadPolicy(db)
	if err != nil || policy == nil {
		return err
	}
	for _, u := range policy.Users() {
		m := &authpb.User{Name: []byte(u.Name), Password: u.Hash, Roles: u.Roles, Options: &authpb.UserAddOptions{NoPassword: u.NoPassword}}
		if err := w.putMessage(bucketUsers, m.Name, m); err != nil {
			return err
		}
	}
	for _, r := range policy.Roles() {
		m := &authpb.Role{Name: []byte(r.Name)}
		for _, p := range r.Permissions {
			m.KeyPermission = append(m.KeyPermission, &authpb.Permission{
				PermType: authpb.Permission_Type(p.Kind), Key: []byte(p.Key), RangeEnd: []byte(p.End),
			})
		}
		if err := w.putMessage(bucketRoles, m.Name, m); err != nil {
			return err
		}
	}
	enabled := []byte{0}
	if policy.Enabled() {
		enabled[0] = 1
	}
	if err := w.put(bucketAuth, keyAuthEnabled, enabled); err != nil {
		return err
	}
	return w.put(bucketAuth, keyAuthRevision, binary.BigEndian.AppendUint64(nil, policy.Revision()))
}

func (w *Writer) putMessage(bucket, k []byte, m proto.Message) error {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err
	}
	return w.put(bucket, k, text)
}

// policy copies users, roles and the auth revision. Etcd makes their three buckets in every database.
func (i *importer) policy() error {
	auth := i.f.tx.Bucket(bucketAuth)
	if auth == nil || i.f.tx.Bucket(bucketUsers) == nil || i.f.tx.Bucket(bucketRoles) == nil {
		return damaged("it lacks a bucket of users, roles or rules")
	}
	users, err := i.users()
	if err != nil {
		return err
	}
	roles, err := i.roles()
	if err != nil {
		return err
	}
	rules := access.Rules{Enabled: bytes.Equal(auth.Get(keyAuthEnabled), []byte{1})}
	if v := auth.Get(keyAuthRevision); len(v) == 8 {
		rules.Revision = binary.BigEndian.Uint64(v)
	}
	if rules.Enabled {
		rules.Since = rules.Revision
	}
	i.found.Users, i.found.Roles, i.found.Access = len(users), len(roles), rules.Enabled
	if len(users)+len(roles) == 0 && !rules.Enabled {
		return nil // a cluster that has never used it, and that members of earlier versions may join
	}
	policy := access.Restore(rules, users, roles)
	if policy.Size() > access.MaxSize {
		return access.ErrTooLarge
	}
	record.PutPolicy(i.batch, nil, policy)
	record.Put(i.batch, record.KeyLevel, &logpb.Level{Level: uint32(gate.Access), Cluster: uint32(gate.Access)})
	return i.full()
}

func (i *importer) users() (users []*access.User, err error) {
	err = i.f.each(i.ctx, bucketUsers, func(k, v []byte) error {
		m := new(authpb.User)
		if err := proto.Unmarshal(v, m); err != nil || !bytes.Equal(m.Name, k) || len(k) == 0 {
			return damaged("user %q cannot be read", k)
		}
		user := &access.User{Name: string(k), Hash: bytes.Clone(m.Password), NoPassword: m.Options.GetNoPassword(), Roles: m.Roles}
		slices.Sort(user.Roles)
		user.Roles = slices.Compact(user.Roles)
		users = append(users, user)
		return nil
	})
	return users, err
}

func (i *importer) roles() (roles []*access.Role, err error) {
	err = i.f.each(i.ctx, bucketRoles, func(k, v []byte) error {
		m := new(authpb.Role)
		if err := proto.Unmarshal(v, m); err != nil || !bytes.Equal(m.Name, k) || len(k) == 0 {
			return damaged("role %q cannot be read", k)
		}
		roles = append(roles, &access.Role{Name: string(k), Permissions: permissionsOf(m)})
		return nil
	})
	return roles, err
}

// permissionsOf returns the permissions of a role. Etcd can have several for one range, which add up there.
func permissionsOf(m *authpb.Role) (all []access.Permission) {
	for _, p := range m.KeyPermission {
		next := access.Permission{Kind: access.Kind(p.GetPermType()), Key: string(p.GetKey()), End: string(p.GetRangeEnd())}
		same := func(p access.Permission) bool { return p.Key == next.Key && p.End == next.End }
		if at := slices.IndexFunc(all, same); at < 0 {
			all = append(all, next)
		} else if all[at].Kind != next.Kind {
			all[at].Kind = access.ReadWrite
		}
	}
	slices.SortStableFunc(all, func(a, b access.Permission) int { return cmp.Compare(a.Key, b.Key) })
	return all
}
