package guard

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// fakeMember is a member in a test.
type fakeMember struct {
	policy    *access.Policy
	confirmed int   // calls of Confirm
	lost      error // of Confirm
}

func (m *fakeMember) Access() *access.Policy { return m.policy }

func (m *fakeMember) Confirm(context.Context) error {
	m.confirmed++
	return m.lost
}

func (m *fakeMember) Login(context.Context, access.Login) (uint64, replica.Header, error) {
	return 1, replica.Header{}, nil
}

func (m *fakeMember) AwaitApplied(context.Context, uint64) bool { return true }

func apply(t *testing.T, p *access.Policy, commands ...access.Command) *access.Policy {
	t.Helper()
	for _, c := range commands {
		next, err := p.Apply(c)
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		p = next
	}
	return p
}

// newGuard makes a guard of a policy with root, and with the user u, which may read and write the keys from a to c. Access is
// enabled. peers may be nil, as in [Config].
func newGuard(t *testing.T, peers func() bool) (*Guard, *fakeMember) {
	t.Helper()
	m := &fakeMember{policy: apply(t, nil, access.AddUser{Name: access.Root}, access.GrantRole{User: access.Root, Role: access.Root},
		access.AddUser{Name: "u"}, access.AddRole{Name: "r"}, access.GrantRole{User: "u", Role: "r"},
		access.GrantPermission{Role: "r", Permission: &access.Permission{Kind: access.ReadWrite, Key: "a", End: "c"}}, access.Enable{})}
	g, err := New(Config{Member: m, AuthToken: "simple", Logins: login.NewLogins(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	g.cfg.OpenPeers = peers // New refuses open ones while access is enabled
	return g, m
}

// as returns the context of a stream of a user.
func as(user string) context.Context {
	ctx := admission.WithPin(context.Background())
	admission.PinOf(ctx).Set(user)
	return ctx
}

// forged returns the context of a request with an invalid token.
func forged() context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs("token", "forged.1"))
}

// fromPeer returns the context of a request in which a member says who the user is.
func fromPeer(f admission.Finding, c access.Caller) context.Context {
	said, _ := metadata.FromOutgoingContext(admission.SayCaller(context.Background(), f, c))
	return admission.MarkPeerRequest(metadata.NewIncomingContext(context.Background(), said))
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestOptionsOfTokensAreChecked(t *testing.T) {
	m := new(fakeMember)
	if _, err := New(Config{Member: m, AuthToken: "wrong"}); err == nil {
		t.Error("a wrong option is accepted")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	open := false
	members := func(url string) func() []roster.Member {
		return func() []roster.Member { return []roster.Member{{ID: 1}, {ID: 2, PeerURLs: []string{url}}} }
	}
	for what, c := range map[string]struct {
		cfg  Config
		want bool
	}{
		"nobody could log in":                    {Config{AuthToken: "simple"}, false},
		"simple tokens":                          {Config{AuthToken: "simple", Logins: login.NewLogins(time.Minute)}, true},
		"tokens that need no logins":             {Config{AuthToken: "jwt,sign-method=HS256,priv-key=" + secret}, true},
		"closed peers":                           {Config{AuthToken: "simple", Logins: login.NewLogins(time.Minute), OpenPeers: func() bool { return open }}, true},
		"peers that others can pretend to be":    {Config{AuthToken: "simple", Logins: login.NewLogins(time.Minute), OpenPeers: func() bool { return !open }}, false},
		"a member without TLS":                   {Config{AuthToken: "simple", Logins: login.NewLogins(time.Minute), Members: members("http://host:1")}, false},
		"members with TLS":                       {Config{AuthToken: "simple", Logins: login.NewLogins(time.Minute), Members: members("https://host:1")}, true},
		"peers of others, and tokens of no kind": {Config{AuthToken: "simple", OpenPeers: func() bool { return !open }}, false},
	} {
		c.cfg.Member = m
		g, err := New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Safe(); (err == nil) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Without access, nobody is asked for a token.
func TestTokensDoNotMatterWithoutAccess(t *testing.T) {
	g, m := newGuard(t, nil)
	if _, err := g.Caller(forged()); !errors.Is(err, login.ErrInvalidToken) {
		t.Errorf("a forged token: %v", err)
	}
	m.policy = apply(t, m.policy, access.Disable{})
	if c, err := g.Caller(forged()); err != nil || c != (access.Caller{}) {
		t.Errorf("a forged token without access: %v, %v", c, err)
	}
}

// What a member says counts only where no one but members can say it.
func TestMembersNameUsersOnlyWhereOthersCannot(t *testing.T) {
	u := access.Caller{User: "u", Revision: 7}
	for what, c := range map[string]struct {
		peers func() bool
		ctx   context.Context
		want  access.Caller
		err   error
	}{
		"a user":                   {func() bool { return false }, fromPeer(admission.Known, u), u, nil},
		"the member itself":        {func() bool { return false }, fromPeer(admission.Server, access.Caller{}), ownWork, nil},
		"nobody":                   {func() bool { return false }, fromPeer(admission.Nobody, access.Caller{}), access.Caller{}, nil},
		"an invalid token":         {func() bool { return false }, fromPeer(admission.Invalid, access.Caller{}), access.Caller{}, login.ErrInvalidToken},
		"open peers":               {func() bool { return true }, fromPeer(admission.Known, u), access.Caller{}, nil},
		"no peers":                 {nil, fromPeer(admission.Known, u), access.Caller{}, nil},
		"no member":                {func() bool { return false }, metadata.NewIncomingContext(context.Background(), nil), access.Caller{}, nil},
		"open peers, as a member":  {func() bool { return true }, fromPeer(admission.Server, u), access.Caller{}, nil},
		"no peers, a forged token": {nil, fromPeer(admission.Invalid, u), access.Caller{}, nil},
	} {
		g, _ := newGuard(t, c.peers)
		got, err := g.Caller(c.ctx)
		if got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
		wantError(t, what, err, c.err)
	}
	g, _ := newGuard(t, func() bool { return false })
	if c, err := g.Caller(fromPeer(admission.Server+1, u)); err == nil || c != (access.Caller{}) {
		t.Errorf("a finding of a later version: %v, %v", c, err)
	}
}

// What the server does on its own account needs no right, here and at the member that the request is forwarded to, whatever
// changes meanwhile.
func TestOwnWorkOfTheServerNeedsNoRight(t *testing.T) {
	g, m := newGuard(t, func() bool { return false })
	own := admission.AsServer(forged())
	caller, err := g.Caller(own)
	wantError(t, "the server", err, nil)
	out, _ := metadata.FromOutgoingContext(g.Forward(own))
	forwarded, err := g.Caller(admission.MarkPeerRequest(metadata.NewIncomingContext(context.Background(), out)))
	wantError(t, "the server at another member", err, nil)
	m.policy = apply(t, m.policy, access.Disable{}) // as on a member that lags behind the other one
	out, _ = metadata.FromOutgoingContext(g.Forward(own))
	m.policy = apply(t, m.policy, access.Enable{})
	late, err := g.Caller(admission.MarkPeerRequest(metadata.NewIncomingContext(context.Background(), out)))
	wantError(t, "a member that lags", err, nil)
	m.policy = apply(t, m.policy, access.AddRole{Name: "another"})
	for what, c := range map[string]access.Caller{"here": caller, "forwarded": forwarded, "by a member that lags": late} {
		wantError(t, what, m.policy.Check(c, []byte("x"), nil, access.Write), nil)
		wantError(t, what, m.policy.CheckRoot(c), nil)
	}
}

// A refusal is confirmed unless the request is serializable; a permission is not.
func TestRefusalsAreConfirmed(t *testing.T) {
	g, m := newGuard(t, nil)
	may := func(p *access.Policy, c access.Caller) error { return p.Check(c, []byte("a"), nil, access.Read) }
	for what, c := range map[string]struct {
		user         string
		linearizable bool
		confirmed    int
		want         error
	}{
		"permitted": {"u", true, 0, nil}, "permitted, serializable": {"u", false, 0, nil},
		"refused": {"x", true, 1, access.ErrPermissionDenied}, "refused, serializable": {"x", false, 0, access.ErrPermissionDenied},
	} {
		m.confirmed = 0
		wantError(t, what, g.admit(as(c.user), c.linearizable, may), c.want)
		if m.confirmed != c.confirmed {
			t.Errorf("%s: confirmed %d times", what, m.confirmed)
		}
	}
	m.lost = replica.ErrNoLeader
	wantError(t, "refused without a leader", g.admit(as("x"), true, may), replica.ErrNoLeader)
	if _, _, err := g.ReadPolicy(as("u")); !errors.Is(err, replica.ErrNoLeader) {
		t.Errorf("the policy without a leader: %v", err)
	}
}

// Nothing is read for a user without the right, and nothing that was read by a right which was withdrawn meanwhile is answered.
func TestReadingsAreCheckedBeforeAndAfter(t *testing.T) {
	g, m := newGuard(t, nil)
	may := func(p *access.Policy, c access.Caller) error { return p.Check(c, []byte("a"), nil, access.Read) }
	read := 0
	act := func() error { read++; return nil }
	wantError(t, "permitted", g.read(as("u"), true, may, act), nil)
	wantError(t, "refused", g.read(as("x"), true, may, act), access.ErrPermissionDenied)
	if read != 1 {
		t.Errorf("%d readings", read)
	}
	wantError(t, "withdrawn meanwhile", g.read(as("u"), true, may, func() error {
		m.policy = apply(t, m.policy, access.RevokeRole{User: "u", Role: "r"})
		return replica.ErrNoLeader
	}), access.ErrPermissionDenied)
}

// A method that the table does not have is refused while access is enabled, to root too.
func TestUnknownMethodsAreRefused(t *testing.T) {
	g, m := newGuard(t, nil)
	wantError(t, "enabled", g.Method(as(access.Root), "/a.B/C", nil), access.ErrPermissionDenied)
	m.policy = apply(t, m.policy, access.Disable{})
	wantError(t, "not enabled", g.Method(as(access.Root), "/a.B/C", nil), nil)
}

// The caller of a request decides on every change before the member sees it: an invalid token is refused as such.
func TestChangesNeedAValidToken(t *testing.T) {
	g, _ := newGuard(t, nil)
	keys, names := Keys{Member: etcdapi.Member(nil), Guard: g}, Names{Member: namesapi.Member(nil), Guard: g} // a call would panic
	ctx := forged()
	for what, call := range map[string]func() error{
		"Put":         func() error { return last2(keys.Put(ctx, keyspace.PutRequest{})) },
		"DeleteRange": func() error { return last2(keys.DeleteRange(ctx, keyspace.DeleteRequest{})) },
		"Txn": func() error {
			return last2(keys.Txn(ctx, keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.PutRequest{}}}, false))
		},
		"Grant":          func() error { return last2(keys.Grant(ctx, 1, time.Second)) },
		"Revoke":         func() error { return last1(keys.Revoke(ctx, 1)) },
		"ChangeAccess":   func() error { return last1(keys.ChangeAccess(ctx, access.Disable{})) },
		"Renew":          func() error { return keys.Renew(ctx, []lessor.ID{1}, nil) },
		"name: Renew":    func() error { return names.Renew(ctx, []lessor.ID{1}, nil) },
		"name: Access":   func() error { return last1(names.ChangeAccess(ctx, access.Disable{})) },
		"name: Claim":    func() error { return last1(names.Claim(ctx, ownership.Claim{})) },
		"name: Hold":     func() error { return names.Hold(ctx, nil, nil, nil) },
		"name: Release":  func() error { return last1(names.Release(ctx, "n", 1)) },
		"name: Revoke":   func() error { return last1(names.RevokeName(ctx, ownership.Revoke{})) },
		"name: Transfer": func() error { return last1(names.Transfer(ctx, "n", 1)) },
		"name: Finish":   func() error { return names.Finish(ctx, ownership.Finish{}) },
		"name: Raise":    func() error { return names.RaiseMark(ctx, ownership.RaiseMark{}) },
		"name: Prefer":   func() error { return names.Prefer(ctx, ownership.Prefer{}) },
		"name: Pin":      func() error { return names.Pin(ctx, "n", "") },
		"name: Unpin":    func() error { return names.Unpin(ctx, "n") },
	} {
		wantError(t, what, call(), login.ErrInvalidToken)
	}
}

// txnMember is a member whose transactions do nothing.
type txnMember struct{ etcdapi.Member }

func (txnMember) Txn(context.Context, keyspace.TxnRequest, bool) (replica.Header, keyspace.TxnResult, error) {
	return replica.Header{}, keyspace.TxnResult{}, nil
}

// As in etcd, an empty transaction needs no user, but a user of the present policy if there is one.
func TestEmptyTransactionsNeedNoOldUser(t *testing.T) {
	g, m := newGuard(t, func() bool { return false })
	now := m.policy.Revision()
	for c, want := range map[access.Caller]error{
		{}: nil, {User: "u", Revision: now}: nil, {User: "u", Revision: now - 1}: access.ErrOldRevision, ownWork: nil,
	} {
		wantError(t, c.User, last2((Keys{Member: txnMember{}, Guard: g}).Txn(fromPeer(admission.Known, c), keyspace.TxnRequest{}, false)), want)
	}
	m.policy = apply(t, m.policy, access.Disable{})
	wantError(t, "without access", last2((Keys{Member: txnMember{}, Guard: g}).Txn(fromPeer(admission.Known, access.Caller{User: "u", Revision: 1}), keyspace.TxnRequest{}, false)), nil)
}

func last1[T any](_ T, err error) error { return err }

func last2[T, U any](_ T, _ U, err error) error { return err }

// leaseMember is a member with one lease, which may end while leases are listed.
type leaseMember struct {
	etcdapi.Member
	err error // of TimeToLive
}

func (*leaseMember) Leases(context.Context) (replica.Header, []lessor.End, error) {
	return replica.Header{}, []lessor.End{{Ref: lessor.Ref{ID: 1}}}, nil
}

func (m *leaseMember) TimeToLive(context.Context, lessor.ID, bool) (replica.Header, replica.LeaseStatus, error) {
	if m.err != nil {
		return replica.Header{}, replica.LeaseStatus{}, m.err
	}
	return replica.Header{}, replica.LeaseStatus{Items: []lessor.Item{{Key: "x"}}}, nil
}

// Listing leases needs the right to read all attached keys. A lease that ends meanwhile has none.
func TestLeasesAreListedByTheirKeys(t *testing.T) {
	g, _ := newGuard(t, nil)
	for what, c := range map[string]struct {
		user string
		err  error
		want error
	}{
		"a key that the user may not read": {"u", nil, access.ErrPermissionDenied},
		"the lease has ended":              {"u", lessor.ErrNotFound, nil},
		"the lease cannot be read":         {"u", replica.ErrNoLeader, replica.ErrNoLeader},
		"root":                             {access.Root, replica.ErrNoLeader, nil},
	} {
		_, _, err := (Keys{Member: &leaseMember{err: c.err}, Guard: g}).Leases(as(c.user))
		wantError(t, what, err, c.want)
	}
}

// As in etcd, whether a caller has the role root does not depend on the revision at which it was identified.
func TestRootOfAnEarlierRevisionSeesKeysOfLeases(t *testing.T) {
	_, m := newGuard(t, nil)
	old := access.Caller{User: access.Root, Revision: m.policy.Revision() - 1}
	wantError(t, "root", mayReadAll([]lessor.Item{{Key: "x"}})(m.policy, old), nil)
	if ownWork.Revision != math.MaxUint64 {
		t.Error("a change of rights can come between the check and the work of the server")
	}
}
