package server

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

// An identity is what clients share by: the certificate that a client has proven to own, or else the address that its
// connection comes from. Two connections of one client have one identity.
type identity string

// identityKey is the metadata in which a member that sends a request on, and this server's own gateway, name the
// client's identity. It is believed from these two only.
const identityKey = "leasekeeper-identity-bin"

// viaGateway marks the context of a request that came through the gateway for JSON.
type viaGateway struct{}

// identityOf returns the identity of the client that a request is from, on whichever way it came.
func identityOf(ctx context.Context) identity {
	if isVisit(ctx) || ctx.Value(viaGateway{}) != nil {
		if values := metadata.ValueFromIncomingContext(ctx, identityKey); len(values) == 1 {
			return identity(values[0])
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
	return identityOfAddress(p.Addr.String())
}

// identityOfRequest is identityOf for a request over HTTP.
func identityOfRequest(r *http.Request) identity {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return identityOfCertificate(r.TLS.PeerCertificates[0])
	}
	return identityOfAddress(r.RemoteAddr)
}

func identityOfCertificate(leaf *x509.Certificate) identity {
	sum := sha256.Sum256(leaf.Raw)
	return identity("certificate " + hex.EncodeToString(sum[:16]))
}

// identityOfAddress leaves the port out, and of an IPv6 address the half that a machine chooses by itself.
func identityOfAddress(address string) identity {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return identity(host)
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() && !ip.IsLoopback() {
		if prefix, err := ip.Prefix(64); err == nil {
			return identity(prefix.String())
		}
	}
	return identity(ip.String())
}

// withIdentity has the member that a request is sent on to know whose it is.
func withIdentity(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, identityKey, string(identityOf(ctx)))
}

// fromGateway and streamFromGateway stand before the requests of the gateway.
func (s *Server) fromGateway(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	return s.unary(context.WithValue(ctx, viaGateway{}, true), req, info, handle)
}

func (s *Server) streamFromGateway(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx := context.WithValue(stream.Context(), viaGateway{}, true)
	return s.stream(srv, &visitedStream{stream, ctx}, info, handle)
}
