package admission

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Identity identifies a client: by its user ([WithUser]), or else by the certificate that it has proven to own, or else by the
// address of its connection. Two connections of one client have the same identity.
type Identity string

// userPrefix begins the identities that are users. No certificate and no address has it.
const userPrefix = "user "

// identityKey is the metadata with the identity of a client. The server accepts it only from a member that forwards a
// request, and from its own gateway.
const identityKey = "leasekeeper-identity-bin"

// mark is the key of a mark in the context of a request.
type mark int

const (
	peerMark    mark = iota // another member sent the request
	gatewayMark             // the JSON gateway sent the request
	userMark                // the value is the user of the request
)

// MarkPeerRequest marks the context of a request that another member sends. That member regarded this one as the
// leader, or asks about this one. So the request is never forwarded again.
func MarkPeerRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, peerMark, true)
}

// FromPeer reports whether another member sent the request.
func FromPeer(ctx context.Context) bool { return ctx.Value(peerMark) != nil }

// MarkGatewayRequest marks the context of a request that came through the JSON gateway.
func MarkGatewayRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, gatewayMark, true)
}

// FromGateway reports whether the request came through the JSON gateway.
func FromGateway(ctx context.Context) bool { return ctx.Value(gatewayMark) != nil }

// WithUser returns a context in which a user is the identity of the request's client. The caller has identified the user.
func WithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userMark, user)
}

// IdentityOf returns the identity of the client of a request, whether it came directly, from another member or through
// the gateway.
func IdentityOf(ctx context.Context) Identity {
	if user, ok := ctx.Value(userMark).(string); ok {
		return Identity(userPrefix + user)
	}
	if FromPeer(ctx) || FromGateway(ctx) {
		if values := metadata.ValueFromIncomingContext(ctx, identityKey); len(values) == 1 {
			return Identity(values[0])
		}
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
		return identityOfCertificate(info.State.PeerCertificates[0])
	}
	if p.Addr == nil {
		return ""
	}
	return IdentityOfAddress(p.Addr.String())
}

// UserOf returns the identity of the client of a request if it is a user, and otherwise "".
func UserOf(ctx context.Context) Identity {
	if ctx.Value(userMark) == nil && !FromPeer(ctx) {
		return ""
	}
	if who := IdentityOf(ctx); strings.HasPrefix(string(who), userPrefix) {
		return who
	}
	return ""
}

// IdentityOfRequest returns the identity of the client of an HTTP request.
func IdentityOfRequest(r *http.Request) Identity {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return identityOfCertificate(r.TLS.PeerCertificates[0])
	}
	return IdentityOfAddress(r.RemoteAddr)
}

func identityOfCertificate(leaf *x509.Certificate) Identity {
	sum := sha256.Sum256(leaf.Raw)
	return Identity("certificate " + hex.EncodeToString(sum[:16]))
}

// IdentityOfAddress returns the identity of an address without its port. Of an IPv6 address it omits the lower half,
// which a machine chooses itself.
func IdentityOfAddress(address string) Identity {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return Identity(host)
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() && !ip.IsLoopback() {
		if prefix, err := ip.Prefix(64); err == nil {
			return Identity(prefix.String())
		}
	}
	return Identity(ip.String())
}

// Metadata returns metadata that carries the identity to another member, or through the gateway.
func (i Identity) Metadata() metadata.MD { return metadata.Pairs(identityKey, string(i)) }

// WithIdentity adds the identity of the request's client to the metadata of a call to another member.
func WithIdentity(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, identityKey, string(IdentityOf(ctx)))
}

// WithContext returns the stream with another context, such as a marked one.
func WithContext(ctx context.Context, stream grpc.ServerStream) grpc.ServerStream {
	return &markedStream{stream, ctx}
}

type markedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements [grpc.ServerStream].
func (m *markedStream) Context() context.Context { return m.ctx }
