package server

import (
	"net/http"
	"testing"
)

// A web page whose own name resolves to this server's address receives nothing.
func TestRequestForAForeignHostIsRefused(t *testing.T) {
	cfg := anyPort()
	cfg.Advertise = []string{"http://leases.example.org:2379"}
	f := startWith(t, cfg, nil)
	for host, code := range map[string]int{
		f.server.HTTPAddr():         http.StatusOK,
		"[::1]:2381":                http.StatusOK,
		"10.0.0.7":                  http.StatusOK,
		"localhost:2381":            http.StatusOK,
		"leases.example.org":        http.StatusOK,
		"LEASES.example.org.:2381":  http.StatusOK,
		"rebound.example.com":       http.StatusMisdirectedRequest,
		"rebound.example.com:2381":  http.StatusMisdirectedRequest,
		"leases.example.org.evil.x": http.StatusMisdirectedRequest,
		"127.0.0.1.example.com":     http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/readyz", "/metrics", "/v1/get"} {
			method := http.MethodGet
			if path == "/v1/get" {
				method = http.MethodPost
			}
			r, err := http.NewRequestWithContext(f.ctx(), method, "http://"+f.server.HTTPAddr()+path, nil)
			wantOK(t, err)
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			wantOK(t, err)
			resp.Body.Close()
			if refused := resp.StatusCode == http.StatusMisdirectedRequest; refused != (code != http.StatusOK) {
				t.Errorf("%s as %s: %s", path, host, resp.Status)
			}
		}
	}
}
