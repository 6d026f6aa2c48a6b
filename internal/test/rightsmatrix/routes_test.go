package rightsmatrix

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// routes are the patterns that the server's multiplexers have, with what they need. All callers get the same answer from
// those that need nothing: they have no data of users. The paths of gateways are in testdata/matrix.txt.
var routes = map[string]string{
	"GET /livez":   "nothing",
	"GET /readyz":  "nothing",
	"GET /healthz": "nothing",
	"GET /health":  "nothing",
	"GET /version": "nothing",
	"GET /metrics": "nothing",
	"POST /v1/":    "gateway",
	"/v3/":         "gateway",
	"/v3beta/":     "gateway",
	"/":            "the others on the same port",
	// TestConsoleAsEveryUser requests these.
	"GET /console":   "a user",
	"GET /console/":  "a user",
	"POST /console/": "a user",
}

// TestEveryRouteAsEveryUser requests each route as each caller.
func TestEveryRouteAsEveryUser(t *testing.T) {
	for _, pattern := range served(t) {
		if routes[pattern] == "" {
			t.Errorf("package server serves %q: add it to routes, with what it needs", pattern)
		}
	}
	w := newWorld(t, false)
	p := w.proofsOf()[0]
	for through, m := range w.through {
		c := w.dial(m, "")
		for pattern, needs := range routes {
			if !slices.Contains(served(t), pattern) {
				t.Errorf("package server serves no %q", pattern)
			}
			method, path, ok := strings.Cut(pattern, " ")
			if !ok || needs != "nothing" {
				continue
			}
			for _, column := range p.columns {
				for _, address := range []string{m.server.Addr(), m.server.HTTPAddr()} {
					r, err := http.NewRequestWithContext(w.context(), method, "http://"+address+path, nil)
					wantOK(t, err)
					if token := p.token(column); token != "" {
						r.Header.Set("Authorization", token)
					}
					resp, err := c.http.Do(r)
					wantOK(t, err)
					resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						t.Errorf("%s as %s through the %s: %s", pattern, column, through, resp.Status)
					}
				}
			}
		}
	}
}
