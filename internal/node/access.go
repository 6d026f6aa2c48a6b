package node

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// callerKey is the key of the caller in the context of a request.
type callerKey struct{}

// As returns a context for requests on behalf of a caller. While access is enabled, a member refuses requests without
// a caller. A request that changes something is checked when it is applied, and a renewal when the leader processes it.
// The caller of As has identified the user.
func As(ctx context.Context, by access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, by)
}

// callerOf returns the caller that [As] named; the zero Caller if there is none.
func callerOf(ctx context.Context) access.Caller {
	by, _ := ctx.Value(callerKey{}).(access.Caller)
	return by
}

// Access returns the policy that this member has applied. It needs no disk and never waits. A caller that has read something
// and then loads the policy gets every policy under which what it saw was written.
func (n *Node) Access() *access.Policy { return n.access.Load() }

// ChangeAccess changes users, roles or rights, or turns the checks on or off. The caller of the context must have the role
// root if access is enabled. The errors are those of package access.
func (n *Node) ChangeAccess(ctx context.Context, c access.Command) (replica.Header, error) {
	header, _, err := change[replica.Result](ctx, n, c)
	return header, err
}

// Login lets every member know the token that a user got. It returns the index of the log entry: a member that has applied
// it ([Node.AwaitApplied]) has passed the token to [Config].LoggedIn.
func (n *Node) Login(ctx context.Context, login access.Login) (index uint64, header replica.Header, err error) {
	header, answer, err := change[access.Changed](ctx, n, login)
	return answer.Index, header, err
}

// passLogins passes new tokens on. It comes before the index that the callers of AwaitApplied wait for.
func (n *Node) passLogins(effects []replica.Effect) {
	if n.cfg.LoggedIn == nil {
		return
	}
	for _, effect := range effects {
		if e, ok := effect.(replica.Publish); ok && len(e.Logins) > 0 {
			n.cfg.LoggedIn(e.Logins)
		}
	}
}
