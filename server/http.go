package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// Bounds on what one HTTP client can hold. Answers are small; the largest is /metrics.
const (
	httpHeaderTimeout = 5 * time.Second
	httpReadTimeout   = 10 * time.Second
	httpWriteTimeout  = 30 * time.Second
	httpIdleTimeout   = time.Minute
	httpHeaderBytes   = 16 << 10
)

// newHTTP makes the server for operators and their probes, which answers GET and HEAD only, and for programs
// that hold names without gRPC.
func (s *Server) newHTTP() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.serveProbe(s.alive))
	// A server without space for more data still serves what keeps promises, so it is ready.
	mux.HandleFunc("GET /readyz", s.serveProbe(s.ready))
	mux.HandleFunc("GET /healthz", s.serveProbe(s.ready))
	mux.HandleFunc("GET /health", s.serveHealth)
	mux.HandleFunc("GET /version", s.serveVersion)
	mux.Handle("POST /v1/", s.gateway)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             httpWriteTimeout / 2,
	}))
	return &http.Server{
		Handler:           s.ofThisServer(mux),
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpReadTimeout,
		WriteTimeout:      httpWriteTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpHeaderBytes,
		// The default would write to standard error what a scanner of ports provokes.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// serveProbe answers "ok", or 503 and the reason, for people and for Kubernetes.
func (s *Server) serveProbe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(err.Error() + "\n"))
			return
		}
		w.Write([]byte("ok\n"))
	}
}

// serveHealth answers as etcd's /health does: the value is a word and not a boolean, and a shortage of space
// is a matter of health unless the query excludes it.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}{Health: "true"}
	code := http.StatusOK
	reason := ""
	if err := s.ready(); err != nil {
		reason = err.Error()
	} else if s.member.Shortage() != replica.Enough && !slices.Contains(r.URL.Query()["exclude"], "NOSPACE") {
		reason = "ALARM NOSPACE"
	}
	if reason != "" {
		answer.Health, answer.Reason = "false", reason
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, answer)
}

// serveVersion answers as etcd's /version does, and with our own version beside it.
func (s *Server) serveVersion(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Server      string `json:"etcdserver"`
		Cluster     string `json:"etcdcluster"`
		Storage     string `json:"storage"`
		Leasekeeper string `json:"leasekeeper"`
	}{EtcdVersion, EtcdVersion, EtcdVersion, s.cfg.Version})
}

// writeJSON ignores a failure to write: it is the prober who has gone.
func writeJSON(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(answer)
}

// fromGateway and streamFromGateway stand before the requests of the gateway.
func (s *Server) fromGateway(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	return s.unary(admission.MarkGatewayRequest(ctx), req, info, handle)
}

func (s *Server) streamFromGateway(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return s.stream(srv, admission.WithContext(admission.MarkGatewayRequest(stream.Context()), stream), info, handle)
}
