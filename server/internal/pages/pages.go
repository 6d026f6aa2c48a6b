package pages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// Base is the path below which the pages are served.
const Base = "/console"

const (
	// pipeBuffer is the number of bytes in transit between the pages and the services, in each direction.
	pipeBuffer = 64 << 10
	// maxPages and maxRequests bound the open pages and the requests that are served at a time.
	maxPages, maxRequests = 64, 8
	// maxNames is how many names the pages know. They take about 40 MB.
	maxNames = 100_000
	// closeLimit bounds how long the clients of the services may take to close.
	closeLimit = time.Second
	// pingInterval is how often a client of the services may ping.
	pingInterval = time.Second
)

// ownKey is the metadata of requests that the reader of the pages makes on the server's own account. Only clients in this
// package reach the services over the pipe, and the one for users removes it.
const ownKey = "leasekeeper-pages-own"

// Guard is what the pages use of the checks of rights.
type Guard interface {
	// Policy returns the policy in force on this member. The pointer changes with every change of a right.
	Policy() *access.Policy
	// Caller returns the user of a request.
	Caller(context.Context) (access.Caller, error)
}

// Config is what [New] needs.
type Config struct {
	Guard Guard
	// Label names the server for people.
	Label string
	// Services are the services that the pages use: those for names, members and logins.
	Services []Service
	// Serve carries out a request, within the limits and by the rights of the context's caller.
	Serve grpc.UnaryServerInterceptor
	// Crowded reports whether the port for HTTP has few connections left.
	Crowded func() bool
	Log     *slog.Logger
}

// Service is a service and its implementation.
type Service struct {
	Desc *grpc.ServiceDesc
	Impl any
}

// Pages serves the console. Make it with [New]. Its methods are safe for concurrent use.
type Pages struct {
	cfg     Config
	console *webconsole.Console // nil before Start
	handler http.Handler        // console, without the base
	gate    *gate
	grpc    *grpc.Server
	pipe    *bufconn.Listener
	own     *remote.Backend // reads for all pages
	users   *remote.Backend // makes changes
	served  chan struct{}   // closed when grpc has ended; nil before Start
}

// New makes the pages. They are served after [Pages.Start]. The caller must call [Pages.Close].
func New(cfg Config) (*Pages, error) {
	p := &Pages{cfg: cfg, pipe: bufconn.Listen(pipeBuffer)}
	p.grpc = grpc.NewServer(
		grpc.UnaryInterceptor(identified(cfg.Serve)), grpc.StreamInterceptor(noStreams), grpc.MaxSendMsgSize(math.MaxInt32), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval, PermitWithoutStream: true}),
	)
	for _, s := range cfg.Services {
		p.grpc.RegisterService(s.Desc, s.Impl)
	}
	var err error
	if p.own, err = p.dial(asServer); err != nil {
		return nil, err
	}
	if p.users, err = p.dial(asUser); err != nil {
		return nil, errors.Join(err, p.closeStores())
	}
	if p.gate, err = newGate(cfg.Guard, p.users, p.dialer); err != nil {
		return nil, errors.Join(err, p.closeStores())
	}
	return p, nil
}

// Start begins to serve the pages. url is the URL by which programs open the server as a store. closed is why nobody may see
// the pages while access is not enabled, nil if everyone may. Start is called at most once, before the first request.
func (p *Pages) Start(url string, closed error) {
	p.gate.closed = closed
	console, err := webconsole.New(webconsole.Config{
		Store: p.own, Label: p.cfg.Label, URL: url, Access: p.gate, Base: Base, Crowded: p.cfg.Crowded, Log: p.cfg.Log, MaxNames: maxNames, MaxPages: maxPages, MaxRequests: maxRequests,
	})
	if err != nil {
		panic(fmt.Sprintf("pages: the configuration of the console is this package's own: %v", err))
	}
	p.console, p.handler = console, http.StripPrefix(Base, console)
	p.served = make(chan struct{})
	go func() {
		defer close(p.served)
		p.grpc.Serve(p.pipe) // ends by Close only
	}()
}

// ServeHTTP implements [http.Handler]. Paths begin with [Base].
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// Close ends the updates of open pages, the reader and the connections to the services. All goroutines have ended when it
// returns.
func (p *Pages) Close() error {
	if p.console != nil {
		p.console.Close()
	}
	err := errors.Join(p.closeStores(), p.gate.close())
	p.grpc.Stop()
	p.pipe.Close()
	if p.served != nil {
		<-p.served
	}
	return err
}

func (p *Pages) closeStores() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var err error
	for _, b := range []*remote.Backend{p.own, p.users} {
		if b != nil {
			err = errors.Join(err, b.Close(ctx))
		}
	}
	return err
}

func (p *Pages) dialer(ctx context.Context, _ string) (net.Conn, error) {
	return p.pipe.DialContext(ctx)
}

// dial returns a backend that reaches the services with the identity that an interceptor adds.
func (p *Pages) dial(identify grpc.UnaryClientInterceptor) (*remote.Backend, error) {
	return remote.New(remote.Config{
		Endpoints:   []string{target},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(p.dialer), grpc.WithChainUnaryInterceptor(identify)},
	})
}

// target is resolved by nobody: the dialer leads to the pipe.
const target = "passthrough:///pages:1"

// asServer marks requests of the reader.
func asServer(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(metadata.AppendToOutgoingContext(ctx, ownKey, "1"), method, req, reply, cc, opts...)
}

// asUser adds the user of the context. Whatever else the context carries is left out.
func asUser(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	user, _ := ctx.Value(userKey{}).(metadata.MD)
	return invoke(metadata.NewOutgoingContext(ctx, user), method, req, reply, cc, opts...)
}

// identified marks requests as those of the server itself, or of a user like those of the gateway.
func identified(serve grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if len(metadata.ValueFromIncomingContext(ctx, ownKey)) > 0 {
			return serve(admission.AsServer(ctx), req, info, handle)
		}
		return serve(admission.MarkGatewayRequest(ctx), req, info, handle)
	}
}

// noStreams refuses all streams: the pages need none.
func noStreams(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
	return status.Error(codes.Unimplemented, "the console uses no streams")
}
