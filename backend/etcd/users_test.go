package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

var users = flag.Bool("users", false, "create users in the etcd at -endpoint, which is of no use to other tests afterwards")

// A user of a real etcd may use the keys below its prefix, and nothing else. For marks it needs their keys too.
func TestUserOfEtcdMayUseItsPrefixOnly(t *testing.T) {
	if !*users {
		t.Skip("needs an etcd of its own: conformance runs this with one")
	}
	conn, err := grpc.NewClient(*endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	ok(t, err)
	t.Cleanup(func() { conn.Close() })
	auth := pb.NewAuthClient(conn)
	admin := limited(t)
	addUser := func(name, role string) {
		_, err := auth.UserAdd(admin, &pb.AuthUserAddRequest{Name: name, Password: "p/w@" + name})
		ok(t, err)
		_, err = auth.RoleAdd(admin, &pb.AuthRoleAddRequest{Name: role})
		ok(t, err)
		_, err = auth.UserGrantRole(admin, &pb.AuthUserGrantRoleRequest{User: name, Role: role})
		ok(t, err)
	}
	addUser("root", "root")
	addUser("app", "apps")
	_, err = auth.RoleGrantPermission(admin, &pb.AuthRoleGrantPermissionRequest{Name: "apps", Perm: &authpb.Permission{
		PermType: authpb.Permission_READWRITE, Key: []byte("app/"), RangeEnd: []byte("app0"),
	}})
	ok(t, err)
	_, err = auth.AuthEnable(admin, &pb.AuthEnableRequest{})
	ok(t, err)
	given, err := auth.Authenticate(admin, &pb.AuthenticateRequest{Name: "root", Password: "p/w@root"})
	ok(t, err)
	admin = metadata.AppendToOutgoingContext(admin, "token", given.Token)

	opened, err := backend.Open(t.Context(), "etcd://app:p%2Fw%40app@"+*endpoint+"/app")
	ok(t, err)
	b := opened.(*etcd.Backend)
	t.Cleanup(func() { ok(t, b.Close(limited(t))) })
	name := "jobs/nightly"
	l, g := hold(t, b, name)
	err = b.RaiseMark(limited(t), l, tick(1))
	if is(t, err, backend.ErrDenied); !strings.Contains(fmt.Sprint(err), "grant the user the keys that begin with /leasekeeper/marks/app/") {
		t.Errorf("the error does not say what to grant: %v", err)
	}
	_, err = auth.RoleGrantPermission(admin, &pb.AuthRoleGrantPermissionRequest{Name: "apps", Perm: &authpb.Permission{
		PermType: authpb.Permission_READWRITE, Key: []byte("/leasekeeper/marks/app/"), RangeEnd: []byte("/leasekeeper/marks/app0"),
	}})
	ok(t, err)
	given, err = auth.Authenticate(limited(t), &pb.AuthenticateRequest{Name: "root", Password: "p/w@root"})
	ok(t, err)
	admin = metadata.AppendToOutgoingContext(limited(t), "token", given.Token)
	ok(t, b.RaiseMark(limited(t), l, tick(1)))
	marked(t, b, name, backend.Mark{Tick: tick(1), Token: g.Token})
	e := watch(t, b, "jobs/")
	e.await(t, name, func(ev backend.Event) bool { return ev.Info.Token == g.Token })
	w := enqueue(t, b, name)
	turn := make(chan error, 1)
	go func() {
		_, err := b.Await(limited(t), w)
		turn <- err
	}()
	// A change of users or roles makes all tokens invalid.
	for _, role := range []string{"one", "two", "three"} {
		_, err = auth.RoleAdd(admin, &pb.AuthRoleAddRequest{Name: role})
		ok(t, err)
		given, err := auth.Authenticate(limited(t), &pb.AuthenticateRequest{Name: "root", Password: "p/w@root"})
		ok(t, err)
		admin = metadata.AppendToOutgoingContext(limited(t), "token", given.Token)
		if r := renew(t, b, l); r.Err != nil || r.TTL != usualTTL {
			t.Errorf("%+v", r)
		}
		ok(t, b.Announce(limited(t), l, role))
	}
	if infos, err := b.List(limited(t), "jobs/", "", 10); err != nil || len(infos) != 1 || infos[0].Remaining <= 0 {
		t.Errorf("%+v, %v", infos, err)
	}
	ok(t, b.Release(limited(t), l))
	ok(t, <-turn)
	e.await(t, name, func(ev backend.Event) bool { return ev.Info.Token > g.Token })

	for _, c := range []struct {
		cfg  etcd.Config
		want error
	}{
		{etcd.Config{Prefix: "other", Username: "app", Password: "p/w@app"}, backend.ErrDenied},
		{etcd.Config{Prefix: "app", Username: "app", Password: "wrong"}, backend.ErrUnauthenticated},
		{etcd.Config{Prefix: "app"}, backend.ErrUnauthenticated},
	} {
		cfg := c.cfg
		cfg.Endpoints = []string{*endpoint}
		b := openWith(t, cfg)
		for _, wait := range []bool{false, true} {
			l, _, err := b.Claim(limited(t), newClaim("x", wait))
			if is(t, err, c.want); l != nil {
				t.Error("a lease")
			}
		}
		_, err := b.Get(limited(t), "x")
		is(t, err, c.want)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		is(t, b.Watch(ctx, "", func(backend.Event) {}), c.want)
		cancel()
	}
}
