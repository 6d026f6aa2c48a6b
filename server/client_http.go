package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// Bounds for one HTTP/2 connection on the client port. Nothing meters what such a connection receives, so they are fixed.
const (
	clientHTTPStreams    = 100      // open requests
	clientHTTPFrameBytes = 16 << 10 // net/http allocates a frame when its header has arrived
	clientHTTPWindow     = 64 << 10 // unread bytes of request bodies
)

// newClientHTTP makes the HTTP server of the client port. It serves the connections that do not carry gRPC.
func (s *Server) newClientHTTP(operations http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/v3/", s.etcdJSON)
	mux.Handle("/v3beta/", withPrefix("/v3beta/", "/v3/", s.etcdJSON)) // as in etcd
	mux.Handle("/", operations)
	h := s.boundedHTTP(s.countOpen(withCertificate(s.checkHost(refuseForeign(mux)))))
	h.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	// The connections are no longer encrypted where this server reads them.
	h.Protocols.SetUnencryptedHTTP2(true)
	h.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          clientHTTPStreams,
		MaxReadFrameSize:              clientHTTPFrameBytes,
		MaxReceiveBufferPerStream:     clientHTTPWindow,
		MaxReceiveBufferPerConnection: clientHTTPWindow,
	}
	return h
}

// countOpen counts a request as open until the client has room for its answer. It refuses requests, of any path, if too
// many are open on all connections.
func (s *Server) countOpen(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account := connOf(r).account
		refused := s.budget.open.Load() > s.budget.openMost
		account.addOpen(1)
		defer account.addOpen(-1)
		if refused {
			s.refuseOpen(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
		if r.ProtoMajor == 2 {
			// net/http would send the rest only after this function, and wait uncounted for the client's window.
			_ = http.NewResponseController(w).Flush() // fails if the client has gone
		}
	})
}

// refuseOpen refuses a request because too many are open. The client has lingerLimit to receive the reason.
func (s *Server) refuseOpen(w http.ResponseWriter, r *http.Request) {
	s.metrics.Refuse(admission.ReasonMemory)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lingerLimit)) // fails if the client has gone
	if strings.HasPrefix(r.URL.Path, "/v3") {
		s.etcdJSON.refuse(w, r, errManyOpen)
		return
	}
	http.Error(w, status.Convert(errManyOpen).Message(), http.StatusTooManyRequests)
}

// withPrefix replaces the prefix of a request's path.
func withPrefix(old, prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		renamed := new(http.Request)
		*renamed = *r
		renamed.URL = &url.URL{Path: prefix + strings.TrimPrefix(r.URL.Path, old), RawQuery: r.URL.RawQuery}
		next.ServeHTTP(w, renamed)
	})
}

// connKey is the key of a request's *httpConn in its context.
type connKey struct{}

// connOf returns the connection of a request on the client port.
func connOf(r *http.Request) *httpConn {
	conn, _ := r.Context().Value(connKey{}).(*httpConn)
	return conn
}

// withCertificate tells handlers what the client's TLS handshake has proven.
func withCertificate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = tlsOf(r)
		next.ServeHTTP(w, r)
	})
}

func tlsOf(r *http.Request) *tls.ConnectionState {
	if conn := connOf(r); conn != nil {
		return conn.state
	}
	return nil
}

// refuseForeign refuses requests that the page of another site could have sent, through its reader's browser, to a server
// that trusts the reader's machine. Browsers say so by Sec-Fetch-Site, older ones by Origin. It also refuses gRPC on a
// connection that began with another request.
func refuseForeign(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case admission.IsForeign(r):
			http.Error(w, "requests from web pages of other sites are refused", http.StatusForbidden)
		case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			http.Error(w, "this connection began with a request that is not gRPC: open another one for gRPC", http.StatusUnsupportedMediaType)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
