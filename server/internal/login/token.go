package login

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/access"
)

// Member is what [Tokens] use of a member.
type Member interface {
	// Access returns the policy that the member has applied.
	Access() *access.Policy
	// Login tells all members of a token. It returns the index of the log entry that did.
	Login(context.Context, access.Login) (index uint64, err error)
	// AwaitApplied waits until this member has applied a log entry, at most for the read timeout.
	AwaitApplied(ctx context.Context, index uint64) bool
}

// Tokens issues tokens and verifies them. Implementations are safe for concurrent use.
type Tokens interface {
	// Issue makes a token for a user whose password was checked by the policy of an auth revision. It returns
	// [access.ErrOldRevision] if the policy has changed since.
	Issue(ctx context.Context, user string, revision uint64) (string, error)
	// Verify returns the caller whose token it is. All refusals are [ErrInvalidToken].
	Verify(ctx context.Context, token string) (access.Caller, error)
}

// maxTokenBytes bounds the length of a token.
const maxTokenBytes = 4 << 10

var (
	// ErrInvalidToken refuses a token that is forged, expired or withdrawn.
	ErrInvalidToken = errors.New("the token is unknown or has expired: authenticate again")
	// ErrVerifyOnly means that this member has no private key to sign tokens with. Its text is etcd's.
	ErrVerifyOnly = errors.New("auth: token signing attempted with verify-only key")
)
