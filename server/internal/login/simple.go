package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/internal/access"
)

// Simple is a [Tokens] of etcd's simple tokens. Make one with [NewSimple].
type Simple struct {
	member Member
	logins *Logins
}

// NewSimple makes a Simple. The member calls [Logins.Learn] for each login that it applies.
func NewSimple(member Member, logins *Logins) *Simple {
	return &Simple{member: member, logins: logins}
}

// Issue implements [Tokens]. The token is known to every member that has applied the entry of its index.
func (s *Simple) Issue(ctx context.Context, user string, revision uint64) (string, error) {
	text := rand.Text() // 130 random bits
	index, err := s.member.Login(ctx, access.Login{User: user, Digest: sha256.Sum256([]byte(text)), Revision: revision})
	if err != nil {
		return "", err
	}
	return text + "." + strconv.FormatUint(index, 10), nil
}

// Verify implements [Tokens]. It waits until this member has applied the token's entry.
func (s *Simple) Verify(ctx context.Context, token string) (access.Caller, error) {
	text, number, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxTokenBytes {
		return access.Caller{}, ErrInvalidToken
	}
	index, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return access.Caller{}, ErrInvalidToken
	}
	d := sha256.Sum256([]byte(text))
	login, ok := s.logins.use(d)
	if !ok && s.member.AwaitApplied(ctx, index) {
		login, ok = s.logins.use(d)
	}
	policy := s.member.Access()
	if !ok || !policy.Holds(login.user, login.revision) {
		return access.Caller{}, ErrInvalidToken
	}
	return access.Caller{User: login.user, Revision: policy.Revision()}, nil
}
