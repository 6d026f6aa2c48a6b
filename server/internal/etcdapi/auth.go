package etcdapi

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// loginTries bounds how often a password is checked again because the policy has changed meanwhile.
const loginTries = 16

// accessMember is what Auth uses.
type accessMember interface {
	// Access returns the policy that the member has applied.
	Access() *access.Policy
	// ChangeAccess changes the policy. The user of the request must have the role root.
	ChangeAccess(context.Context, access.Command) (replica.Header, error)
}

// Guard is what an [API] uses of the checks of rights.
type Guard interface {
	// Policy returns the policy in force on this member. The pointer changes with every change of a right.
	Policy() *access.Policy
	// Caller returns the user of a request.
	Caller(context.Context) (access.Caller, error)
	// MayRead decides whether the user of a request may read keys.
	MayRead(ctx context.Context, key, end []byte) error
	// CountWatcher counts the watcher that was admitted last as one of the request's user. With an error the caller discharges
	// the watcher.
	CountWatcher(context.Context, *admission.ConnectionWatchers) error
	// Safe returns why access cannot be enabled: a program that is no member could act for any user.
	Safe() error
}

// authService is etcd's Auth: users, roles and tokens.
type authService struct {
	pb.UnimplementedAuthServer
	*API
}

// AuthStatus answers anybody, as in etcd.
func (a *authService) AuthStatus(ctx context.Context, _ *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	if err := a.cfg.Member.Confirm(ctx); err != nil {
		return nil, err
	}
	if _, err := a.cfg.Guard.Caller(ctx); err != nil {
		return nil, err
	}
	p := a.cfg.Member.Access()
	return &pb.AuthStatusResponse{Header: header(a.cfg.Member.Header()), Enabled: p.Enabled(), AuthRevision: p.Revision()}, nil
}

// Authenticate checks a password and issues a token. It checks again if the policy changes meanwhile, because the password
// may be another one then.
func (a *authService) Authenticate(ctx context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	if err := a.cfg.Member.Confirm(ctx); err != nil {
		return nil, err
	}
	for range loginTries {
		revision, err := a.checkPassword(ctx, r)
		if err != nil {
			return nil, err
		}
		token, err := a.cfg.Tokens.Issue(ctx, r.Name, revision)
		if errors.Is(err, access.ErrOldRevision) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &pb.AuthenticateResponse{Header: header(a.cfg.Member.Header()), Token: token}, nil
	}
	return nil, replica.ErrTooManyRequests
}

// checkPassword returns the auth revision by which the password is right.
func (a *authService) checkPassword(ctx context.Context, r *pb.AuthenticateRequest) (revision uint64, err error) {
	hash, revision, err := a.cfg.Member.Access().Password(r.Name)
	if err != nil && !errors.Is(err, access.ErrAuthFailed) {
		return 0, err
	}
	right, err := a.cfg.Passwords.Matches(ctx, string(admission.IdentityOf(ctx)), hash, r.Password)
	if err != nil {
		return 0, err
	}
	if !right {
		tracing.Log(ctx, a.cfg.Log).Info("a wrong password was given, or the user does not exist", "user", r.Name, "client", string(admission.IdentityOf(ctx)))
		return 0, access.ErrAuthFailed
	}
	return revision, nil
}

// AuthEnable begins to check rights.
func (a *authService) AuthEnable(ctx context.Context, _ *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	if err := a.cfg.Guard.Safe(); err != nil {
		return nil, err
	}
	h, err := a.change(ctx, access.Enable{})
	return &pb.AuthEnableResponse{Header: h}, err
}

func (a *authService) AuthDisable(ctx context.Context, _ *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	h, err := a.change(ctx, access.Disable{})
	return &pb.AuthDisableResponse{Header: h}, err
}

// change makes a change, and logs it. gRPC ignores the answer if there is an error.
func (a *authService) change(ctx context.Context, c access.Command) (*pb.ResponseHeader, error) {
	h, err := a.cfg.Member.ChangeAccess(ctx, c)
	if err != nil {
		return nil, err
	}
	return header(h), nil
}

func (a *authService) UserAdd(ctx context.Context, r *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	c := access.AddUser{Name: r.Name, NoPassword: r.GetOptions().GetNoPassword()}
	var err error
	if !c.NoPassword {
		if c.Hash, err = a.hash(ctx, r.Password); err != nil {
			return nil, err
		}
	}
	h, err := a.change(ctx, c)
	return &pb.AuthUserAddResponse{Header: h}, err
}

// hash makes the hash of a password, once the user of the request is known to have the role root.
func (a *authService) hash(ctx context.Context, password string) ([]byte, error) {
	return a.cfg.Passwords.Hash(ctx, string(admission.IdentityOf(ctx)), password)
}

// UserChangePassword takes a hash in place of the password, as etcd does.
func (a *authService) UserChangePassword(ctx context.Context, r *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	c := access.ChangePassword{Name: r.Name}
	var err error
	if r.Password != "" {
		c.Hash, err = a.hash(ctx, r.Password)
	} else if c.Hash, err = base64.StdEncoding.DecodeString(r.HashedPassword); err != nil {
		err = access.ErrNoPasswordUser
	}
	if err != nil {
		return nil, err
	}
	h, err := a.change(ctx, c)
	return &pb.AuthUserChangePasswordResponse{Header: h}, err
}

// UserGet answers users about themselves, and root about everybody.
func (a *authService) UserGet(ctx context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	p, err := a.readPolicy(ctx, func(p *access.Policy, c access.Caller) bool { return r.Name == c.User })
	if err != nil {
		return nil, err
	}
	user := p.User(r.Name)
	if user == nil {
		return nil, access.ErrUserNotFound
	}
	return &pb.AuthUserGetResponse{Header: header(a.cfg.Member.Header()), Roles: user.Roles}, nil
}

// RoleGet answers users about their own roles, and root about all.
func (a *authService) RoleGet(ctx context.Context, r *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	p, err := a.readPolicy(ctx, func(p *access.Policy, c access.Caller) bool {
		user := p.User(c.User)
		return user != nil && slices.Contains(user.Roles, r.Role)
	})
	if err != nil {
		return nil, err
	}
	role := p.Role(r.Role)
	if role == nil {
		return nil, access.ErrRoleNotFound
	}
	return &pb.AuthRoleGetResponse{Header: header(a.cfg.Member.Header()), Perm: permissions(role)}, nil
}

// readPolicy returns the policy after everything that was acknowledged before, to root and to users about what is their own.
func (a *authService) readPolicy(ctx context.Context, own func(*access.Policy, access.Caller) bool) (*access.Policy, error) {
	if err := a.cfg.Member.Confirm(ctx); err != nil {
		return nil, err
	}
	caller, err := a.cfg.Guard.Caller(ctx)
	if err != nil {
		return nil, err
	}
	p := a.cfg.Member.Access()
	if err := p.CheckRoot(caller); err != nil && !own(p, caller) {
		return nil, err
	}
	return p, nil
}

// permissions returns a role's permissions. The role root may do everything, whatever its record says.
func permissions(role *access.Role) []*authpb.Permission {
	if role.Name == access.Root {
		return []*authpb.Permission{{PermType: authpb.Permission_READWRITE, RangeEnd: []byte{0}}}
	}
	all := make([]*authpb.Permission, len(role.Permissions))
	for i, p := range role.Permissions {
		all[i] = &authpb.Permission{PermType: authpb.Permission_Type(p.Kind), Key: []byte(p.Key), RangeEnd: []byte(p.End)}
	}
	return all
}

func (a *authService) UserList(ctx context.Context, _ *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	p, err := a.readPolicy(ctx, func(*access.Policy, access.Caller) bool { return false })
	if err != nil {
		return nil, err
	}
	resp := &pb.AuthUserListResponse{Header: header(a.cfg.Member.Header())}
	for _, user := range p.Users() {
		resp.Users = append(resp.Users, user.Name)
	}
	return resp, nil
}

func (a *authService) RoleList(ctx context.Context, _ *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	p, err := a.readPolicy(ctx, func(*access.Policy, access.Caller) bool { return false })
	if err != nil {
		return nil, err
	}
	resp := &pb.AuthRoleListResponse{Header: header(a.cfg.Member.Header())}
	for _, role := range p.Roles() {
		resp.Roles = append(resp.Roles, role.Name)
	}
	return resp, nil
}

func (a *authService) UserDelete(ctx context.Context, r *pb.AuthUserDeleteRequest) (*pb.AuthUserDeleteResponse, error) {
	h, err := a.change(ctx, access.DeleteUser{Name: r.Name})
	return &pb.AuthUserDeleteResponse{Header: h}, err
}

func (a *authService) UserGrantRole(ctx context.Context, r *pb.AuthUserGrantRoleRequest) (*pb.AuthUserGrantRoleResponse, error) {
	h, err := a.change(ctx, access.GrantRole{User: r.User, Role: r.Role})
	return &pb.AuthUserGrantRoleResponse{Header: h}, err
}

func (a *authService) UserRevokeRole(ctx context.Context, r *pb.AuthUserRevokeRoleRequest) (*pb.AuthUserRevokeRoleResponse, error) {
	h, err := a.change(ctx, access.RevokeRole{User: r.Name, Role: r.Role})
	return &pb.AuthUserRevokeRoleResponse{Header: h}, err
}

func (a *authService) RoleAdd(ctx context.Context, r *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	h, err := a.change(ctx, access.AddRole{Name: r.Name})
	return &pb.AuthRoleAddResponse{Header: h}, err
}

func (a *authService) RoleDelete(ctx context.Context, r *pb.AuthRoleDeleteRequest) (*pb.AuthRoleDeleteResponse, error) {
	h, err := a.change(ctx, access.DeleteRole{Name: r.Role})
	return &pb.AuthRoleDeleteResponse{Header: h}, err
}

func (a *authService) RoleGrantPermission(ctx context.Context, r *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	c := access.GrantPermission{Role: r.Name}
	if r.Perm != nil {
		c.Permission = &access.Permission{Kind: access.Kind(r.Perm.PermType), Key: string(r.Perm.Key), End: string(r.Perm.RangeEnd)}
	}
	h, err := a.change(ctx, c)
	return &pb.AuthRoleGrantPermissionResponse{Header: h}, err
}

func (a *authService) RoleRevokePermission(ctx context.Context, r *pb.AuthRoleRevokePermissionRequest) (*pb.AuthRoleRevokePermissionResponse, error) {
	h, err := a.change(ctx, access.RevokePermission{Role: r.Role, Key: string(r.Key), End: string(r.RangeEnd)})
	return &pb.AuthRoleRevokePermissionResponse{Header: h}, err
}

// ErrUnsafePeers is the error of AuthEnable while a program that is no member could act for any user.
var ErrUnsafePeers = errors.New("access cannot be enabled: the port for members is reachable from other machines and has no TLS, " +
	"so any program that reaches it could act for any user: give --peer-cert, --peer-key and --peer-ca, or listen for members on this machine only (--peer-listen)")
