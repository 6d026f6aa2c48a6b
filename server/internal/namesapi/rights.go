package namesapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// maxListRoles bounds the roles in one page.
const maxListRoles = 1000

// nameRight is a right as the policy and as messages have it.
type nameRight struct {
	right access.Rights
	wire  leasekeeperv1.NameRight
}

// wireRights has the rights in the order in which they are shown.
var wireRights = []nameRight{
	{access.Hold, leasekeeperv1.NameRight_HOLD},
	{access.Watch, leasekeeperv1.NameRight_WATCH},
	{access.Administer, leasekeeperv1.NameRight_ADMINISTER},
}

// mayTakeTurn returns an error if the user of a stream may not hold a name at this moment. The stream reports the turn of a
// waiting claim only after it, because the right may have been withdrawn while the claim waited. The claim of a user without
// the right leaves the queue: the server releases it on its own account.
func (n *Service) mayTakeTurn(ctx context.Context, key claimKey) error {
	_, err := n.cfg.Rights.MayName(ctx, key.name, access.Hold)
	if errors.Is(err, access.ErrPermissionDenied) {
		n.cfg.Lifetime.Go(func() { n.releaseDenied(key) })
	}
	return err
}

// releaseDenied releases a claim whose user has lost the right to hold the name. If that fails, the claim ends with its lease,
// which the user can no longer renew.
func (n *Service) releaseDenied(key claimKey) {
	ctx, cancel := context.WithTimeout(admission.AsServer(n.cfg.Lifetime.Context()), n.cfg.RequestTimeout)
	defer cancel()
	if _, err := n.cfg.Member.Release(ctx, key.name, key.lease); err != nil {
		n.cfg.Log.Info("the claim of a user who may no longer hold the name was not released; it ends with its lease", "name", key.name, "error", err)
	}
}

// GrantRight adds rights of a role. The member checks that the user of the request has the role root.
func (n *Service) GrantRight(ctx context.Context, r *leasekeeperv1.GrantRightRequest) (*leasekeeperv1.GrantRightResponse, error) {
	right, err := rightOf(r.Prefix, r.Rights)
	if err != nil {
		return nil, err
	}
	if right.Rights == 0 {
		return nil, fmt.Errorf("%w: no right is given: give at least one of HOLD, WATCH and ADMINISTER", backend.ErrInvalid)
	}
	_, err = n.cfg.Member.ChangeAccess(ctx, access.GrantRight{Role: r.Role, Right: right})
	return &leasekeeperv1.GrantRightResponse{}, err
}

// RevokeRight takes rights from a role. The member checks that the user of the request has the role root.
func (n *Service) RevokeRight(ctx context.Context, r *leasekeeperv1.RevokeRightRequest) (*leasekeeperv1.RevokeRightResponse, error) {
	right, err := rightOf(r.Prefix, r.Rights)
	if err != nil {
		return nil, err
	}
	_, err = n.cfg.Member.ChangeAccess(ctx, access.RevokeRight{Role: r.Role, Right: right})
	return &leasekeeperv1.RevokeRightResponse{}, err
}

// rightOf returns the rights that a request names.
func rightOf(prefix string, rights []leasekeeperv1.NameRight) (access.Right, error) {
	right := access.Right{Prefix: prefix}
	if len(prefix) > backend.MaxName {
		return right, fmt.Errorf("%w: the prefix has %d bytes, more than the %d of a name", backend.ErrInvalid, len(prefix), backend.MaxName)
	}
	for _, wanted := range rights {
		i := slices.IndexFunc(wireRights, func(known nameRight) bool { return known.wire == wanted })
		if i < 0 {
			return right, fmt.Errorf("%w: there is no right %v: give HOLD, WATCH or ADMINISTER", backend.ErrInvalid, wanted)
		}
		right.Rights |= wireRights[i].right
	}
	return right, nil
}

// wireOf returns a set of rights as messages have it.
func wireOf(rights access.Rights) (all []leasekeeperv1.NameRight) {
	for _, known := range wireRights {
		if rights&known.right != 0 {
			all = append(all, known.wire)
		}
	}
	return all
}

// ListRights answers users about their own roles, and users with the role root about all. The answer is the same whether or
// not a role exists that another user asks for.
func (n *Service) ListRights(ctx context.Context, r *leasekeeperv1.ListRightsRequest) (*leasekeeperv1.ListRightsResponse, error) {
	policy, caller, err := n.cfg.Rights.ReadPolicy(ctx)
	if err != nil {
		return nil, err
	}
	roles, err := visibleRoles(policy, caller, r.Role)
	if err != nil {
		return nil, err
	}
	limit := int(r.Limit)
	if limit <= 0 || limit > maxListRoles {
		limit = maxListRoles
	}
	resp := new(leasekeeperv1.ListRightsResponse)
	size := 0
	for _, role := range roles {
		if role.Name <= r.After && r.After != "" {
			continue
		}
		if len(resp.Roles) == limit || size >= maxNamesBytes {
			resp.More = true
			break
		}
		shown := roleRights(role)
		size += proto.Size(shown)
		resp.Roles, resp.Last = append(resp.Roles, shown), role.Name
	}
	return resp, nil
}

// visibleRoles returns the roles that a caller may see: the named one, or all of them, sorted.
func visibleRoles(p *access.Policy, c access.Caller, name string) ([]*access.Role, error) {
	roles, refused := p.Roles(), access.ErrRoleNotFound
	if err := p.CheckRoot(c); err != nil {
		user := p.User(c.User)
		if user == nil {
			return nil, err
		}
		refused = access.ErrPermissionDenied
		roles = slices.DeleteFunc(roles, func(role *access.Role) bool { return !slices.Contains(user.Roles, role.Name) })
	}
	if name == "" {
		return roles, nil
	}
	i, found := slices.BinarySearchFunc(roles, name, func(role *access.Role, name string) int { return strings.Compare(role.Name, name) })
	if !found {
		return nil, refused
	}
	return roles[i : i+1], nil
}

func roleRights(role *access.Role) *leasekeeperv1.RoleRights {
	shown := &leasekeeperv1.RoleRights{Role: role.Name}
	for _, right := range role.Rights {
		shown.Rights = append(shown.Rights, &leasekeeperv1.RightsOverNames{Prefix: right.Prefix, Rights: wireOf(right.Rights)})
	}
	return shown
}
