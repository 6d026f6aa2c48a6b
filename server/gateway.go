package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
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
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// gatewayBuffer is the number of bytes in transit between the gateway and the service, in each direction.
const gatewayBuffer = 64 << 10

// gateway serves leasekeeper.v1 as JSON over HTTP. It is a client of that service in this process, on a separate gRPC
// server that nothing else can reach. JSON and gRPC therefore have the same limits and errors. That server also has the
// services of etcd's API, for etcdJSON.
type gateway struct {
	s      *Server
	grpc   *grpc.Server
	pipe   *bufconn.Listener
	conn   *grpc.ClientConn
	mux    *runtime.ServeMux
	closed bool // to programs on other machines; set before the first request
}

func newGateway(s *Server) (*gateway, error) {
	g := &gateway{s: s, pipe: bufconn.Listen(gatewayBuffer)}
	g.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(s.cfg.MaxRequestBytes+requestOverhead), grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.UnaryInterceptor(s.interceptGatewayUnary), grpc.StreamInterceptor(s.interceptGatewayStream),
		grpc.WaitForHandlers(true),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
	)
	leasekeeperv1.RegisterLeasekeeperServer(g.grpc, s.names)
	for _, svc := range s.etcd.Services() {
		g.grpc.RegisterService(svc.Desc, svc.Impl)
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return g.pipe.DialContext(ctx) }
	var err error
	g.conn, err = grpc.NewClient("passthrough:///gateway", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A stalled stream then holds no more than its request counts.
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &boundedJSON{
			// Scripts need fields with zero values too. Unknown fields are refused, because they are mostly typing
			// errors.
			JSONPb: runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitUnpopulated: true}},
			most:   s.cfg.MaxRequestBytes + requestOverhead,
		}),
		runtime.WithMetadata(func(_ context.Context, r *http.Request) metadata.MD {
			return metadata.Join(admission.IdentityOfRequest(r).Metadata(), admission.OriginOfRequest(r), tracing.Metadata(r))
		}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }), // the library passes Authorization
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
	)
	return g, leasekeeperv1.RegisterLeasekeeperHandler(context.Background(), g.mux, g.conn)
}

// start begins to serve. It needs the addresses of both listeners to decide whether other machines may use the gateway.
// httpAddr is nil if the port for HTTP is off.
func (g *gateway) start(grpcAddr, httpAddr net.Addr) {
	g.closed = httpAddr != nil && beyondLoopback(httpAddr) && !beyondLoopback(grpcAddr)
	g.s.life.Go(func() { g.grpc.Serve(g.pipe) }) // ends by stop only
}

// stop ends the gateway. The caller calls it when no HTTP request is open.
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
		http.Error(w, "the request could not be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	g.mux.ServeHTTP(w, r)
}

// refuse returns an HTTP status and a reason for requests that a web page could have sent, and 0 for all others.
func (g *gateway) refuse(r *http.Request) (code int, text string) {
	if g.closed {
		return http.StatusForbidden, "names are not served over HTTP to other machines: gRPC listens on this machine only (--listen), " +
			"but HTTP does not (--http); give both addresses that other machines reach, or none"
	}
	// A web page must not be able to act, through its reader's browser, on a server that trusts the reader's machine.
	if r.Header.Get("Origin") != "" {
		return http.StatusForbidden, "requests from web pages are refused"
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, "send JSON: -H 'Content-Type: application/json'"
	}
	return 0, ""
}

// prepare bounds the size of a request. It removes the time limits of a stream, which lasts as long as its client
// wants.
func (g *gateway) prepare(w http.ResponseWriter, r *http.Request) error {
	c := http.NewResponseController(w)
	unbound := func() error {
		return errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
	}
	if r.URL.Path == "/v1/renew" { // the client receives answers while it sends
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

// boundedJSON decodes an endless stream of messages, each of bounded size.
type boundedJSON struct {
	runtime.JSONPb
	most int // bytes per message
}

var errHugeMessage = errors.New("a message is larger than the server accepts (--max-request-bytes)")

// NewDecoder implements [runtime.Marshaler].
func (b *boundedJSON) NewDecoder(r io.Reader) runtime.Decoder {
	in := &allowance{r: r}
	decoder := b.JSONPb.NewDecoder(in)
	counted, _ := r.(*countedBody)
	return runtime.DecoderFunc(func(v any) error {
		in.left = b.most
		if counted != nil {
			counted.message = 0
			return counted.decoded(decoder.Decode(v))
		}
		return decoder.Decode(v)
	})
}

// allowance reads at most left bytes.
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
