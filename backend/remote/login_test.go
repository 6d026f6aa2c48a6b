package remote_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
	"github.com/leasekeeper/leasekeeper/server"
)

// password is that of every user of the tests. It has what a URL escapes.
const password = "p/w@: %"

// admin is root at one member, by a client that uses no package of ours.
type admin struct {
	t     testing.TB
	auth  pb.AuthClient
	names leasekeeperv1.LeasekeeperClient
	token string
}

func administer(t testing.TB, addr string, creds credentials.TransportCredentials) *admin {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	ok(t, err)
	t.Cleanup(func() { conn.Close() })
	return &admin{t: t, auth: pb.NewAuthClient(conn), names: leasekeeperv1.NewLeasekeeperClient(conn)}
}

func (a *admin) ctx() context.Context {
	ctx := limited(a.t)
	if a.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", a.token)
	}
	return ctx
}

// addUser adds a user, with a role of the same name.
func (a *admin) addUser(name string) {
	a.t.Helper()
	_, err := a.auth.UserAdd(a.ctx(), &pb.AuthUserAddRequest{Name: name, Password: password})
	ok(a.t, err)
	_, err = a.auth.RoleAdd(a.ctx(), &pb.AuthRoleAddRequest{Name: name})
	ok(a.t, err)
	_, err = a.auth.UserGrantRole(a.ctx(), &pb.AuthUserGrantRoleRequest{User: name, Role: name})
	ok(a.t, err)
}

func (a *admin) grant(role, prefix string, rights ...leasekeeperv1.NameRight) {
	a.t.Helper()
	_, err := a.names.GrantRight(a.ctx(), &leasekeeperv1.GrantRightRequest{Role: role, Prefix: prefix, Rights: rights})
	ok(a.t, err)
}

// enable adds root and alice, who may hold and watch the names in app/, and enables access.
func (a *admin) enable() {
	a.t.Helper()
	a.addUser("root")
	a.addUser("alice")
	a.grant("alice", "app/", leasekeeperv1.NameRight_HOLD, leasekeeperv1.NameRight_WATCH)
	a.turnOn()
}

func (a *admin) turnOn() {
	a.t.Helper()
	_, err := a.auth.AuthEnable(a.ctx(), &pb.AuthEnableRequest{})
	ok(a.t, err)
	a.logIn()
}

func (a *admin) logIn() {
	a.t.Helper()
	a.token = ""
	given, err := a.auth.Authenticate(a.ctx(), &pb.AuthenticateRequest{Name: "root", Password: password})
	ok(a.t, err)
	a.token = given.Token
}

// endTokens ends all tokens of alice.
func (a *admin) endTokens() {
	a.t.Helper()
	_, err := a.auth.UserChangePassword(a.ctx(), &pb.AuthUserChangePasswordRequest{Name: "alice", Password: password})
	ok(a.t, err)
}

// as returns a backend for a user, opened by a URL.
func as(t testing.TB, user, password, addr string) backend.Backend {
	t.Helper()
	u := url.URL{Scheme: "leasekeeper", Host: addr, Path: "/app"}
	if user != "" {
		u.User = url.UserPassword(user, password)
	}
	b, err := backend.Open(t.Context(), u.String())
	ok(t, err)
	t.Cleanup(func() { ok(t, b.Close(limited(t))) })
	return b
}

func eachMember(t *testing.T, test func(t *testing.T, a *admin, addr string)) {
	g := endpointstest.StartCluster(t)
	a := administer(t, g.Members[0].Addr, insecure.NewCredentials())
	a.enable()
	for name, m := range map[string]*endpointstest.Member{"leader": g.Members[0], "follower": g.Members[1]} {
		t.Run(name, func(t *testing.T) { test(t, a, m.Addr) })
	}
}

func TestUserMayWhatItsRightsSay(t *testing.T) {
	eachMember(t, func(t *testing.T, a *admin, addr string) {
		b := as(t, "alice", password, addr)
		name := unique("n")
		l, g := hold(t, b, name)
		waiting := enqueue(t, b, name)
		ok(t, renew(t, b, l).Err)
		info, err := b.Get(limited(t), name)
		if ok(t, err); info.Token != g.Token {
			t.Errorf("the name is %+v", info)
		}
		resumer, other := b.(backend.Resumer), info.Holder
		_, _, err = resumer.Resume(limited(t), name, g.Token, info.Holder)
		ok(t, err)
		other.ID += "-other" // writing it needs permission for the key
		_, _, err = resumer.Resume(limited(t), name, g.Token, other)
		is(t, err, backend.ErrDenied)
		_, err = b.List(limited(t), "", "", 10)
		ok(t, err)
		is(t, b.(backend.Pinner).Pin(limited(t), name, "x"), backend.ErrDenied)
		is(t, b.(backend.Revoker).Revoke(limited(t), name, g.Token, "x", true), backend.ErrDenied)
		ok(t, b.Release(limited(t), l))
		_, err = b.Await(limited(t), waiting)
		ok(t, err)

		for _, c := range []struct {
			user, password string
			want           error
		}{
			{"root", password, nil}, {"alice", "wrong", backend.ErrUnauthenticated}, {"nobody", password, backend.ErrUnauthenticated},
			{"", "", backend.ErrUnauthenticated}, {"alice", "", backend.ErrUnauthenticated},
		} {
			other := as(t, c.user, c.password, addr)
			_, err := other.Get(limited(t), name)
			if !errors.Is(err, c.want) {
				t.Errorf("%q with %q reads: %v, want %v", c.user, c.password, err, c.want)
			}
			l, _, err := other.Claim(limited(t), newClaim(unique("x"), false))
			if !errors.Is(err, c.want) {
				t.Errorf("%q with %q claims: %v, want %v", c.user, c.password, err, c.want)
			}
			if err == nil {
				ok(t, other.Release(limited(t), l))
			}
		}
	})
}

// When a token ends, requests go on with another one, and open streams with the user that opened them.
func TestEndOfATokenIsNotNoticed(t *testing.T) {
	eachMember(t, func(t *testing.T, a *admin, addr string) {
		b := as(t, "alice", password, addr)
		held, _ := hold(t, b, unique("held"))
		name := unique("queue")
		first, _ := hold(t, b, name)
		waiting := enqueue(t, b, name)
		seen := make(chan backend.Event, 100)
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- b.(backend.Watcher).Watch(ctx, name, func(e backend.Event) { seen <- e }) }()
		<-seen
		for range 3 {
			a.endTokens()
			ok(t, renew(t, b, held).Err)
			_, err := b.Get(limited(t), name)
			ok(t, err)
			l, _ := hold(t, b, unique("new"))
			ok(t, b.Release(limited(t), l))
		}
		ok(t, b.Release(limited(t), first))
		turn, err := b.Await(limited(t), waiting)
		ok(t, err)
		for e := range seen {
			if e.Info.Held && e.Info.Token == turn.Token {
				break
			}
		}
		cancel()
		<-watched
	})
}

// Every change of users and roles ends all JSON Web Tokens. Neither requests nor open streams fail for that.
func TestChangeOfUsersEndsNoWorkWithJSONWebTokens(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(secret, []byte(strings.Repeat("s", 32)), 0o600))
	s := startOwn(t, server.Config{AuthToken: "jwt,sign-method=HS256,ttl=10m,priv-key=" + secret})
	a := administer(t, s.Addr, insecure.NewCredentials())
	a.enable()
	b := as(t, "alice", password, s.Addr)
	held, _ := hold(t, b, unique("held"))
	name := unique("queue")
	first, _ := hold(t, b, name)
	waiting := enqueue(t, b, name)
	for range 3 {
		a.grant("alice", unique("app/x"), leasekeeperv1.NameRight_HOLD)
		a.logIn() // the grant has ended root's token, too
		_, err := b.Get(limited(t), name)
		ok(t, err)
		ok(t, renew(t, b, held).Err)
		l, _ := hold(t, b, unique("new"))
		ok(t, b.Release(limited(t), l))
	}
	ok(t, b.Release(limited(t), first))
	_, err := b.Await(limited(t), waiting)
	ok(t, err)
}

// A backend that was opened before access was enabled logs in when it needs to.
func TestAccessIsEnabledMeanwhile(t *testing.T) {
	g := endpointstest.StartCluster(t)
	a := administer(t, g.Members[0].Addr, insecure.NewCredentials())
	a.addUser("root")
	a.addUser("alice")
	a.grant("alice", "app/", leasekeeperv1.NameRight_HOLD, leasekeeperv1.NameRight_WATCH)
	for _, m := range g.Members[:2] {
		b := as(t, "alice", password, m.Addr)
		l, _ := hold(t, b, unique("before"))
		ok(t, b.Release(limited(t), l))
		a.token = ""
		a.turnOn()
		l, _ = hold(t, b, unique("after"))
		ok(t, renew(t, b, l).Err)
		_, err := a.auth.AuthDisable(a.ctx(), &pb.AuthDisableRequest{})
		ok(t, err)
		ok(t, renew(t, b, l).Err)
		ok(t, b.Release(limited(t), l))
	}
}

// A keeper whose right is withdrawn loses the lease in time, and its error says why.
func TestKeeperLosesWhatItMayNoLongerHold(t *testing.T) {
	eachMember(t, func(t *testing.T, a *admin, addr string) {
		k, err := leasekeeper.New(as(t, "alice", password, addr)) // a TTL for which a login may take seconds
		ok(t, err)
		t.Cleanup(func() { ok(t, k.Close()) })
		l, err := k.Acquire(limited(t), unique("n"))
		ok(t, err)
		_, err = a.names.RevokeRight(a.ctx(), &leasekeeperv1.RevokeRightRequest{Role: "alice", Prefix: "app/", Rights: []leasekeeperv1.NameRight{leasekeeperv1.NameRight_HOLD}})
		ok(t, err)
		select {
		case <-l.Context().Done():
		case <-time.After(waitLimit):
			t.Fatal("the lease lasts")
		}
		if err := context.Cause(l.Context()); !errors.Is(err, leasekeeper.ErrLost) || !errors.Is(err, leasekeeper.ErrDenied) {
			t.Errorf("the context ends with %v", err)
		}
		_, err = k.Acquire(limited(t), unique("n"))
		is(t, err, leasekeeper.ErrDenied)
		a.grant("alice", "app/", leasekeeperv1.NameRight_HOLD)
	})
}

// The common name of a certificate names the user, unless the backend logs in as another one.
func TestUserOfACertificate(t *testing.T) {
	ca := authority.New(t, "ca")
	cert, key := ca.Issue("server", "127.0.0.1")
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, content, 0o600))
		return path
	}
	s := startOwn(t, server.Config{CertFile: file("cert", cert), KeyFile: file("key", key), ClientCAFile: file("ca", ca.PEM())})
	certificate := func(name string) *tls.Config { return ca.Trust(ca.Pair(name)) }
	a := administer(t, s.Addr, credentials.NewTLS(certificate("root")))
	a.enable()
	_, err := a.auth.UserAdd(a.ctx(), &pb.AuthUserAddRequest{Name: "bob", Options: &authpb.UserAddOptions{NoPassword: true}})
	ok(t, err)
	for _, c := range []struct {
		cfg  remote.Config
		want error
	}{
		{remote.Config{TLS: certificate("alice")}, nil},
		{remote.Config{TLS: certificate("bob")}, backend.ErrDenied},
		{remote.Config{TLS: certificate("stranger")}, backend.ErrDenied},
		{remote.Config{TLS: certificate("bob"), Username: "alice", Password: password}, nil},
		{remote.Config{TLS: certificate("alice"), Username: "bob", Password: "x"}, backend.ErrUnauthenticated},
	} {
		c.cfg.Endpoints, c.cfg.Namespace = []string{s.Addr}, "app"
		b, err := remote.New(c.cfg)
		ok(t, err)
		_, _, err = b.Claim(limited(t), newClaim(unique("n"), false))
		if !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.cfg.Username, err, c.want)
		}
		ok(t, b.Close(limited(t)))
	}
}
