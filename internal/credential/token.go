package credential

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Token is the token of a user, which all goroutines of a client share. The zero Token has none yet. Its methods are safe for
// concurrent use.
type Token struct {
	mu  sync.Mutex
	has bool   // now is set
	now string // empty if the server has no users
}

// Get returns the token to send. If there is none, it asks for one. Asking is a channel with room for one element, of the
// connection over which ask goes: one call asks there, and others wait for its token until their context ends. So a server that
// does not answer does not keep a call from asking another one.
func (t *Token) Get(ctx context.Context, asking chan struct{}, ask func(context.Context) (string, error)) (string, error) {
	if token, has := t.current(); has {
		return token, nil
	}
	select {
	case asking <- struct{}{}:
		defer func() { <-asking }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if token, has := t.current(); has {
		return token, nil
	}
	token, err := ask(ctx)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has, t.now = true, token
	return token, nil
}

func (t *Token) current() (token string, has bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now, t.has
}

// Refuse notes that a server has refused a token: the next call asks for another one, unless one has done so already.
func (t *Token) Refuse(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == token {
		t.has = false
	}
}

// Forget makes the next call ask for another token.
func (t *Token) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has = false
}

// NeedsToken reports whether etcd's API refused a call that may succeed with another token. Such a call had no effect.
func NeedsToken(err error) bool {
	return says(err, rpctypes.ErrGRPCInvalidAuthToken) || says(err, rpctypes.ErrGRPCUserEmpty) || says(err, rpctypes.ErrGRPCAuthOldRevision)
}

// says reports whether err is this error of etcd's API.
func says(err, want error) bool {
	return status.Code(err) != codes.OK && status.Convert(err).Message() == status.Convert(want).Message()
}
