package guard

import (
	"context"
	"errors"
	"log/slog"
	"math"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
)

// Config is what a [Guard] needs.
type Config struct {
	Member Member
	Log    *slog.Logger
	// AuthToken says which tokens users get, as etcd's --auth-token does.
	AuthToken string
	// Logins are the simple tokens that the member learns; nil if it passes none on.
	Logins *login.Logins
	// CertificateNames is set if the common name of a client's certificate names a user.
	CertificateNames bool
	// OpenPeers reports whether others than members can send requests as members; nil if the member is alone.
	OpenPeers func() bool
	// Members returns the members of the cluster, as this member has applied them; nil if the member is alone.
	Members func() []roster.Member
}

// ErrExposed is the error of a member with access enabled while a program that is no member could act for any user.
var ErrExposed = errors.New("access is enabled, and the port for members is reachable from other machines and has no TLS, " +
	"so a program that reaches it could act for any user: start with --peer-cert, --peer-key and --peer-ca, " +
	"or let --peer-listen name an address that only this machine reaches")

// Guard checks rights. Make one with [New]. Its methods are safe for concurrent use.
type Guard struct {
	cfg    Config
	tokens login.Tokens
	issues bool // users can get tokens

	refusals refusals
	rates    admission.Rates
}

// New makes a Guard. It reads the keys for tokens, if there are any. The error is that of [Guard.Exposed] if a member is started that
// must not serve.
func New(c Config) (*Guard, error) {
	options, err := login.ParseOptions(c.AuthToken)
	if err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{cfg: c, issues: options.JWT != nil || c.Logins != nil}
	if err := g.Exposed(); err != nil {
		return nil, err
	}
	if c.Logins == nil {
		c.Logins = login.NewLogins(login.DefaultTTL)
	}
	g.tokens, err = options.Open(tokenMember{c.Member}, c.Logins, c.Log)
	return g, err
}

// Exposed returns [ErrExposed] while access is enabled and others than members can send requests as members. A member may learn
// only after its start that access is enabled, from the end of its log.
func (g *Guard) Exposed() error {
	if g.cfg.Member.Access().Enabled() && g.openPeers() {
		return ErrExposed
	}
	return nil
}

// openPeers reports whether others than members can send requests as members.
func (g *Guard) openPeers() bool { return g.cfg.OpenPeers != nil && g.cfg.OpenPeers() }

// Tokens returns the tokens of the server.
func (g *Guard) Tokens() login.Tokens { return g.tokens }

// Policy returns the policy in force on this member. The pointer changes with every change of a right.
func (g *Guard) Policy() *access.Policy { return g.cfg.Member.Access() }

// ownWork is the caller of what a server does on its own account. No change of rights comes between its check and its work.
var ownWork = access.Caller{User: access.Root, Revision: math.MaxUint64}

// Caller returns the user of a request; the zero Caller while access is not enabled, and for a client that has not
// authenticated. The error is [login.ErrInvalidToken], or says that another member's word cannot be read.
func (g *Guard) Caller(ctx context.Context) (access.Caller, error) {
	policy := g.cfg.Member.Access()
	if !policy.Enabled() {
		return access.Caller{}, nil
	}
	if admission.IsServer(ctx) {
		return ownWork, nil
	}
	if known, ok := ctx.Value(foundKey{}).(found); ok && known.policy == policy && admission.PinOf(ctx) == nil {
		return known.caller, nil
	}
	pin := admission.PinOf(ctx)
	if pin != nil {
		if user, ok := pin.User(); ok {
			return access.Caller{User: user, Revision: policy.Revision()}, nil
		}
	}
	caller, err := g.identify(ctx, policy)
	if pin != nil && err == nil && caller != (access.Caller{}) {
		pin.Set(caller.User)
	}
	return caller, err
}

// identify finds out who the user of a request is.
func (g *Guard) identify(ctx context.Context, policy *access.Policy) (access.Caller, error) {
	if admission.FromPeer(ctx) {
		return g.said(ctx)
	}
	if token, ok := admission.TokenOf(ctx); ok {
		return g.tokens.Verify(ctx, token)
	}
	if g.cfg.CertificateNames {
		if name, ok := admission.CommonNameOf(ctx); ok {
			return access.Caller{User: name, Revision: policy.Revision()}, nil
		}
	}
	return access.Caller{}, nil
}

// said returns the user that another member named.
func (g *Guard) said(ctx context.Context) (access.Caller, error) {
	if g.cfg.OpenPeers == nil || g.cfg.OpenPeers() {
		return access.Caller{}, nil
	}
	finding, caller, err := admission.SaidCaller(ctx)
	switch {
	case err != nil:
		return access.Caller{}, err
	case finding == admission.Known:
		return caller, nil
	case finding == admission.Invalid:
		return access.Caller{}, login.ErrInvalidToken
	case finding == admission.Server:
		return ownWork, nil
	}
	return access.Caller{}, nil
}

// Forward adds to a call to another member what this one has found out about the user of the request. That member refuses
// the request if it has to, so the order of errors is the same as here.
func (g *Guard) Forward(ctx context.Context) context.Context {
	if admission.IsServer(ctx) {
		return admission.SayCaller(ctx, admission.Server, access.Caller{})
	}
	caller, err := g.Caller(ctx)
	switch {
	case err != nil:
		return admission.SayCaller(ctx, admission.Invalid, access.Caller{})
	case caller == (access.Caller{}):
		return ctx
	}
	return admission.SayCaller(ctx, admission.Known, caller)
}

// check decides something about a caller by a policy.
type check func(*access.Policy, access.Caller) error

// verdict decides by the policy in force on this member.
func (g *Guard) verdict(ctx context.Context, may check) error {
	if !g.cfg.Member.Access().Enabled() {
		return nil
	}
	caller, err := g.Caller(ctx)
	if err != nil {
		return err
	}
	return may(g.cfg.Member.Access(), caller)
}

// admit decides before a request is carried out. A refusal rests on everything that was acknowledged before, unless the
// request does not ask for that.
func (g *Guard) admit(ctx context.Context, linearizable bool, may check) error {
	err := g.verdict(ctx, may)
	if err == nil || !linearizable {
		return err
	}
	if err := g.cfg.Member.Confirm(ctx); err != nil {
		return err
	}
	return g.verdict(ctx, may)
}

// read carries out a request that reads. The policy in force after the reading decides whether the client gets the answer.
func (g *Guard) read(ctx context.Context, linearizable bool, may check, act func() error) error {
	if err := g.admit(ctx, linearizable, may); err != nil {
		return err
	}
	err := act()
	if refused := g.verdict(ctx, may); refused != nil {
		return refused
	}
	return err
}

// change returns the context with which a change is made. The member checks the change by the rights of the user.
func (g *Guard) change(ctx context.Context) (context.Context, error) {
	caller, err := g.Caller(ctx)
	if err != nil || caller == (access.Caller{}) {
		return ctx, err
	}
	return node.As(ctx, caller), nil
}

// act is change for what the audit log may record: the log has from where the request came, too.
func (g *Guard) act(ctx context.Context) (context.Context, error) {
	caller, err := g.Caller(ctx)
	if err != nil {
		return ctx, err
	}
	caller.Origin = admission.OriginOf(ctx)
	return node.As(ctx, caller), nil
}

// renewal returns the context with which leases are renewed.
func (g *Guard) renewal(ctx context.Context) (context.Context, error) {
	if err := g.verdict(ctx, identified); err != nil {
		return ctx, err
	}
	return g.change(ctx)
}

// MayRead decides whether the user of a request may read keys, by the policy in force on this member.
func (g *Guard) MayRead(ctx context.Context, key, end []byte) error {
	return g.verdict(ctx, func(p *access.Policy, c access.Caller) error { return p.Check(c, key, end, access.Read) })
}

// identified needs no right, and only a user.
func identified(p *access.Policy, c access.Caller) error { return p.CheckIdentified(c) }

// root needs the role root.
func root(p *access.Policy, c access.Caller) error { return p.CheckRoot(c) }
