package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// gatewayBuffer is how much is on its way between the gateway and the service, each way.
const gatewayBuffer = 64 << 10

// gateway serves our own service as JSON over HTTP. It is a client of that service in this process, on a
// gRPC server of its own that nobody else can reach, so that both ways have the same limits and errors.
type gateway struct {
	s      *Server
	grpc   *grpc.Server
	pipe   *bufconn.Listener
	conn   *grpc.ClientConn
	mux    *runtime.ServeMux
	closed bool // to those beyond this machine; set before the first request
}

func newGateway(s *Server) (*gateway, error) {
	g := &gateway{s: s, pipe: bufconn.Listen(gatewayBuffer)}
	g.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(s.cfg.MaxRequestBytes+requestOverhead),
		grpc.UnaryInterceptor(s.fromGateway), grpc.StreamInterceptor(s.streamFromGateway),
		grpc.WaitForHandlers(true),
	)
	leasekeeperv1.RegisterLeasekeeperServer(g.grpc, s.names)
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return g.pipe.DialContext(ctx) }
	var err error
	g.conn, err = grpc.NewClient("passthrough:///gateway", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &boundedJSON{
			// What is zero is shown, for scripts; what is not known is refused, for those who mistype.
			JSONPb: runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitUnpopulated: true}},
			most:   s.cfg.MaxRequestBytes + requestOverhead,
		}),
		runtime.WithMetadata(func(_ context.Context, r *http.Request) metadata.MD {
			return admission.IdentityOfRequest(r).Metadata()
		}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
	)
	return g, leasekeeperv1.RegisterLeasekeeperHandler(context.Background(), g.mux, g.conn)
}

// start is called once it is known where clients are served.
func (g *gateway) start(grpcAddr, httpAddr net.Addr) {
	g.closed = beyondLoopback(httpAddr) && !beyondLoopback(grpcAddr)
	g.s.life.Go(func() { g.grpc.Serve(g.pipe) }) // ends by stop only
}

// stop is called when no HTTP request is left.
func (g *gateway) stop() {
	g.conn.Close()
	g.grpc.Stop()
	g.pipe.Close()
}

// ServeHTTP implements [http.Handler].
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code, text := g.refuse(r); code != 0 {
		http.Error(w, text, code)
		return
	}
	if err := g.prepare(w, r); err != nil {
		http.Error(w, "the request cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	g.mux.ServeHTTP(w, r)
}

// refuse turns away what no program of the user's own sends.
func (g *gateway) refuse(r *http.Request) (code int, text string) {
	if g.closed {
		return http.StatusForbidden, "names are served over HTTP only where gRPC is: it listens on this machine alone (--listen), " +
			"and --http beyond it"
	}
	// A web page must not be able to make its reader's browser act on a server that trusts the reader's machine.
	if r.Header.Get("Origin") != "" {
		return http.StatusForbidden, "requests of web pages are not served"
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, "send JSON: -H 'Content-Type: application/json'"
	}
	return 0, ""
}

// prepare bounds a request, and unbounds a stream of answers, which lasts as long as its client wants.
func (g *gateway) prepare(w http.ResponseWriter, r *http.Request) error {
	c := http.NewResponseController(w)
	unbound := func() error {
		return errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
	}
	if r.URL.Path == "/v1/renew" { // its answers come while it sends
		return errors.Join(unbound(), c.EnableFullDuplex())
	}
	r.Body = http.MaxBytesReader(w, r.Body, int64(g.s.cfg.MaxRequestBytes+requestOverhead))
	if r.URL.Path != "/v1/acquire" && r.URL.Path != "/v1/watch" {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return unbound()
}

// boundedJSON reads messages of a bounded size each, of a stream that has no end.
type boundedJSON struct {
	runtime.JSONPb
	most int // bytes
}

var errHugeMessage = errors.New("a message is larger than requests may be")

// NewDecoder implements [runtime.Marshaler].
func (b *boundedJSON) NewDecoder(r io.Reader) runtime.Decoder {
	in := &allowance{r: r}
	decoder := b.JSONPb.NewDecoder(in)
	return runtime.DecoderFunc(func(v any) error {
		in.left = b.most
		return decoder.Decode(v)
	})
}

// allowance reads no more than what is left of it.
type allowance struct {
	r    io.Reader
	left int
}

// Read implements [io.Reader].
func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, errHugeMessage
	}
	n, err := a.r.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}
