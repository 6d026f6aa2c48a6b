package admission

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/leasekeeper/leasekeeper/internal/access"
)

// callerKey is the metadata with what a member has found out about the user of a request. Only other members may set it.
// nameKey is the metadata with the common name of a client's certificate. Only the gateway may set it.
const (
	callerKey = "leasekeeper-caller-bin"
	nameKey   = "leasekeeper-common-name-bin"
)

// Finding says what a member has found out about the user of a request.
type Finding uint8

// The findings. The numbers travel between members: none gets a new meaning.
const (
	Nobody  Finding = iota // no token, and no certificate that counts
	Known                  // a user
	Invalid                // a token that is not valid
	Server                 // the member itself makes the request
)

// errCaller means that a member said something about a user that this version does not understand.
var errCaller = errors.New("the user that a member named cannot be read")

// SayCaller adds to the metadata of a call to another member what was found out about the user.
func SayCaller(ctx context.Context, f Finding, c access.Caller) context.Context {
	text := binary.BigEndian.AppendUint64([]byte{byte(f)}, c.Revision)
	return metadata.AppendToOutgoingContext(ctx, callerKey, string(append(text, c.User...)))
}

// SaidCaller returns what another member said about the user of a request. The caller has made sure that the request is a
// member's.
func SaidCaller(ctx context.Context) (Finding, access.Caller, error) {
	values := metadata.ValueFromIncomingContext(ctx, callerKey)
	switch {
	case len(values) == 0:
		return Nobody, access.Caller{}, nil
	case len(values) > 1 || len(values[0]) < 9 || Finding(values[0][0]) > Server:
		return Nobody, access.Caller{}, errCaller
	}
	text := values[0]
	return Finding(text[0]), access.Caller{User: text[9:], Revision: binary.BigEndian.Uint64([]byte(text[1:]))}, nil
}

// TokenOf returns the token of a request, as etcd's clients send it.
func TokenOf(ctx context.Context) (token string, ok bool) {
	for _, key := range []string{"token", "authorization"} {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			return strings.TrimPrefix(values[0], "Bearer "), true
		}
	}
	return "", false
}

// CommonNameOf returns the common name of the certificate that the client of a request has proven to own. ok is false if it
// has proven none.
func CommonNameOf(ctx context.Context) (name string, ok bool) {
	if FromGateway(ctx) {
		if values := metadata.ValueFromIncomingContext(ctx, nameKey); len(values) == 1 {
			return values[0], true
		}
		return "", false
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", false
	}
	return info.State.VerifiedChains[0][0].Subject.CommonName, true
}

// ownKey marks the server's own work in a context.
type ownKey struct{}

// AsServer returns a context for work that the server does on its own account, such as cleaning up after a client. No user's
// rights limit it.
func AsServer(ctx context.Context) context.Context { return context.WithValue(ctx, ownKey{}, true) }

// IsServer reports whether the context is of the server's own work.
func IsServer(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

// pinKey is the key of a *Pin in a context.
type pinKey struct{}

// Pin keeps the user of a stream from the first time that the user was identified. So a stream outlives the token with which
// it was opened. Its methods are safe for concurrent use.
type Pin struct {
	mu    sync.Mutex
	user  string
	known bool
}

// WithPin returns a context with a Pin for a stream.
func WithPin(ctx context.Context) context.Context { return context.WithValue(ctx, pinKey{}, new(Pin)) }

// PinOf returns the Pin of a context; nil if it has none.
func PinOf(ctx context.Context) *Pin {
	p, _ := ctx.Value(pinKey{}).(*Pin)
	return p
}

// KeepPin returns a context for work that outlasts a request, on behalf of the user that the request's Pin keeps.
func KeepPin(ctx, request context.Context) context.Context {
	if p := PinOf(request); p != nil {
		return context.WithValue(ctx, pinKey{}, p)
	}
	return ctx
}

// User returns the user that was identified first.
func (p *Pin) User() (user string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.user, p.known
}

// Set keeps a user, if none is kept yet.
func (p *Pin) Set(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		p.user, p.known = user, true
	}
}
