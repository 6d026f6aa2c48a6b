package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/server/internal/pages"
)

// errConsoleClosed is why the console is not served: it would show what the port for clients keeps to this machine.
var errConsoleClosed = errors.New("the console is not served to other machines: gRPC listens on this machine only (--listen), but HTTP does not (--http); " +
	"enable access, or give both addresses that other machines reach, or none")

// newConsole makes the web console of the port for HTTP.
func (s *Server) newConsole() (*pages.Pages, error) {
	services := []pages.Service{
		{Desc: &leasekeeperv1.Leasekeeper_ServiceDesc, Impl: s.names},
		{Desc: &leasekeeperv1.Members_ServiceDesc, Impl: &membersService{s: s}},
	}
	for _, svc := range s.etcd.Services() {
		services = append(services, pages.Service{Desc: svc.Desc, Impl: svc.Impl})
	}
	return pages.New(pages.Config{
		Guard: s.guard, Label: "the server " + s.cfg.Name, Services: services, Serve: s.interceptPagesUnary, Log: s.log,
		// The rest is for probes, metrics and programs.
		Crowded: func() bool { return s.limits.connections[1].Open() > s.cfg.MaxConnectionsHTTP/2 },
	})
}

// interceptPagesUnary intercepts the requests of the web console.
func (s *Server) interceptPagesUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, err := s.guard.Arrive(ctx, info.FullMethod)
	if err != nil {
		return nil, s.refused(ctx, info.FullMethod, err)
	}
	return s.unary(ctx, req, info, handle)
}

// routeConsole adds the console to the port for HTTP.
func (s *Server) routeConsole(mux *http.ServeMux) {
	mux.Handle("GET /console", http.RedirectHandler(pages.Base+"/", http.StatusPermanentRedirect))
	mux.Handle("GET /console/", s.console)
	mux.Handle("POST /console/", s.console)
}

// startConsole begins to serve the console. Like the gateway it is closed to other machines that the port for clients does not
// serve.
func (s *Server) startConsole(grpcAddr, httpAddr net.Addr) {
	if s.console == nil {
		return
	}
	var closed error
	if beyondLoopback(httpAddr) && !beyondLoopback(grpcAddr) {
		closed = errConsoleClosed
	}
	s.console.Start(storeURL(s.cfg.clientURLs(grpcAddr.String())[0]), closed)
}

// storeURL returns the URL of a store on the server at a URL for clients.
func storeURL(client string) string {
	scheme, address, _ := strings.Cut(client, "://")
	if scheme == "https" {
		return remote.SchemeTLS + "://" + address
	}
	return remote.Scheme + "://" + address
}
