package admission

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/leasekeeper/leasekeeper/internal/access"
)

// originKey is the metadata with the address of a client. The server accepts it only from a member that forwards a request,
// and from its own gateway. [nameKey] goes with it.
const originKey = "leasekeeper-origin-bin"

// unknownOrigin is the address of a client whose transport has none.
const unknownOrigin = "unknown"

// OriginOf returns from where a request came, for the audit log. The address is that of the client's connection to the
// member that received the request, which need not be this one.
func OriginOf(ctx context.Context) access.Origin {
	if FromPeer(ctx) || FromGateway(ctx) {
		o := access.Origin{Address: unknownOrigin}
		if values := metadata.ValueFromIncomingContext(ctx, originKey); len(values) == 1 {
			o.Address = values[0]
		}
		if values := metadata.ValueFromIncomingContext(ctx, nameKey); len(values) == 1 {
			o.Certificate = values[0]
		}
		return o
	}
	o := access.Origin{Address: unknownOrigin}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		o.Address = hostOf(p.Addr.String())
	}
	o.Certificate, _ = CommonNameOf(ctx)
	return o
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	if host == "" {
		return unknownOrigin
	}
	return host
}

// WithOrigin adds to the metadata of a call to another member from where the request came.
func WithOrigin(ctx context.Context) context.Context {
	o := OriginOf(ctx)
	if o.Certificate != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, nameKey, o.Certificate)
	}
	return metadata.AppendToOutgoingContext(ctx, originKey, o.Address)
}

// OriginOfRequest returns metadata for the gateway with from where an HTTP request came: the client's address, and the common
// name of the certificate that it has proven to own, if it has.
func OriginOfRequest(r *http.Request) metadata.MD {
	m := metadata.Pairs(originKey, hostOf(r.RemoteAddr))
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		m.Set(nameKey, r.TLS.VerifiedChains[0][0].Subject.CommonName)
	}
	return m
}
