package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// Bounds for one HTTP client. Answers are small; the largest is /metrics.
const (
	httpHeaderTimeout = 5 * time.Second
	httpReadTimeout   = 10 * time.Second
	httpWriteTimeout  = 30 * time.Second
	httpIdleTimeout   = time.Minute
	httpHeaderBytes   = 16 << 10
)

// newHTTP makes the HTTP server of the port for HTTP. Operators and probes use GET and HEAD; programs that hold names
// without gRPC use POST.
func (s *Server) newHTTP(operations http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/", s.gateway)
	if s.console != nil {
		s.routeConsole(mux)
	}
	mux.Handle("/", operations)
	return s.boundedHTTP(s.checkHost(mux))
}

// operations serves health, version and metrics, for both HTTP servers.
func (s *Server) operations() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.serveProbe(s.alive))
	// A server without space for more data still keeps its promises, so it is ready.
	mux.HandleFunc("GET /readyz", s.serveProbe(s.ready))
	mux.HandleFunc("GET /healthz", s.serveProbe(s.ready))
	mux.HandleFunc("GET /health", s.serveHealth)
	mux.HandleFunc("GET /version", s.serveVersion)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             httpWriteTimeout / 2,
	}))
	return mux
}

// boundedHTTP makes an HTTP server with the bounds for one client.
func (s *Server) boundedHTTP(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpReadTimeout,
		WriteTimeout:      httpWriteTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpHeaderBytes,
		// The default logger would write to standard error whenever a port scanner connects.
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

// serveHealth answers like etcd's /health: the value is a string, and the alarm NOSPACE makes the server unhealthy
// unless the query excludes it.
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

// serveVersion answers like etcd's /version, and adds the version of this program.
func (s *Server) serveVersion(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Server      string `json:"etcdserver"`
		Cluster     string `json:"etcdcluster"`
		Storage     string `json:"storage"`
		Leasekeeper string `json:"leasekeeper"`
	}{EtcdVersion, EtcdVersion, EtcdVersion, s.cfg.Version})
}

// writeJSON ignores a failure to write, since only the client's departure causes one.
func writeJSON(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(answer)
}
