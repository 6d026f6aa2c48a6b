package admission

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// An Identity is what clients share by: the certificate that a client has proven to own, or else the address that its
// connection comes from. Two connections of one client have one identity.
type Identity string

// identityKey is the metadata in which a member that forwards a request, and this server's own gateway, name the
// client's identity. It is believed from these two only.
const identityKey = "leasekeeper-identity-bin"

// mark is the key of a mark in the context of a request.
type mark int

const (
	peerMark    mark = iota // another member sent the request
	gatewayMark             // the gateway for JSON sent the request
)

// MarkPeerRequest marks the context of a request that another member sends. That member took this one for the leader, or
// asks about this one, so the request is never forwarded again.
func MarkPeerRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, peerMark, true)
}

// FromPeer reports whether another member sent the request.
func FromPeer(ctx context.Context) bool { return ctx.Value(peerMark) != nil }

// MarkGatewayRequest marks the context of a request that came through the gateway for JSON.
func MarkGatewayRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, gatewayMark, true)
}

// IdentityOf returns the identity of the client that a request is from, whichever way it came.
func IdentityOf(ctx context.Context) Identity {
	if FromPeer(ctx) || ctx.Value(gatewayMark) != nil {
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

// IdentityOfRequest is the identity of the client of a request over HTTP.
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

// IdentityOfAddress leaves out the port, and of an IPv6 address the half that a machine chooses by itself.
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

// Metadata names an identity to the member or the service that the request goes to.
func (i Identity) Metadata() metadata.MD { return metadata.Pairs(identityKey, string(i)) }

// WithIdentity names the client of a request to the member that the request is forwarded to.
func WithIdentity(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, identityKey, string(IdentityOf(ctx)))
}

// WithContext returns a stream with another context, such as a marked one.
func WithContext(ctx context.Context, stream grpc.ServerStream) grpc.ServerStream {
	return &markedStream{stream, ctx}
}

type markedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements [grpc.ServerStream].
func (m *markedStream) Context() context.Context { return m.ctx }
