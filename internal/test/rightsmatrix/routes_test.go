package rightsmatrix

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// elsewhere are the patterns of the server's multiplexers that requests and forms leave out.
var elsewhere = map[string]string{
	"POST /v1/":      "the paths of the gateway are in testdata/matrix.txt",
	"/v3/":           "so are these",
	"/v3beta/":       "so are these",
	"/":              "the other patterns on the same port",
	"POST /console/": "the patterns of the console",
}

// request is a request over HTTP, with the pattern that serves it and what it needs:
//
//	public  nothing, not even a valid token
//	user    a user
//	half    the right to a name below half/
//	other   the right to a name that half has no right to
//	root    the role root
type request struct {
	pattern, path, need string
	code                int // for callers that have what it needs
}

// requests are at least one for each route that is no form, and one for each page. The names that begin with half/there and
// other/there are held.
var requests = []request{
	{"GET /livez", "/livez", "public", 200},
	{"GET /readyz", "/readyz", "public", 200},
	{"GET /healthz", "/healthz", "public", 200},
	{"GET /health", "/health", "public", 200},
	{"GET /version", "/version", "public", 200},
	{"GET /metrics", "/metrics", "public", 200},

	{"GET /console", "/console", "public", 308},
	{"GET /console/login", "/console/login", "public", 200},
	{"GET /console/assets/", "/console/assets/console.js", "public", 200},
	{"GET /console/assets/", "/console/assets/console.css", "public", 200},
	{"GET /console/assets/", "/console/assets/icon.svg", "public", 200},
	{"GET /console/assets/", "/console/assets/absent", "public", 404},

	{"GET /console/", "/console/", "user", 200},
	{"GET /console/", "/console/?format=json", "user", 200},
	{"GET /console/", "/console/names?q=there&format=json", "user", 200},
	{"GET /console/", "/console/holder?id=root&format=json", "user", 200},
	{"GET /console/", "/console/host?host=none&format=json", "user", 200},
	{"GET /console/", "/console/store?format=json", "user", 200},
	{"GET /console/", "/console/cluster?format=json", "user", 200},
	{"GET /console/", "/console/audit?format=json", "root", 200},
	{"GET /console/", "/console/foreign?format=json", "root", 200},
	{"GET /console/", "/console/name?name=half/there", "half", 200},
	{"GET /console/", "/console/name?name=half/absent", "half", 200},
	{"GET /console/", "/console/name?name=other/there", "other", 200},
	{"GET /console/", "/console/name?name=other/absent", "other", 200},
	{"GET /console/", "/console/absent", "user", 404},

	{"GET /console/updates", "/console/updates?page=/audit", "root", 200},
	{"GET /console/updates", "/console/updates?page=/name?name=half/there", "half", 200},
	{"GET /console/updates", "/console/updates?page=/name?name=other/there", "other", 200},
	{"GET /console/updates", "/console/updates?page=/absent", "user", 400},
}

// forms are the routes of the console that change something. TestEveryRouteAsEveryUser sends them in the functions that begin
// with try.
var forms = []string{"pin", "unpin", "transfer", "revoke", "drain", "login", "logout"}

// has reports whether a caller has what a request needs. Half has its role, unless that was withdrawn.
func has(column, need string, withdrawn bool) bool {
	switch {
	case need == "public", column == "root":
		return true
	case need == "user":
		return isUser(column)
	case need == "half":
		return column == "half" && !withdrawn
	}
	return false
}

func isUser(column string) bool { return column == "bare" || column == "half" || column == "root" }

// statusFor is the status for a caller, if code is that for callers that have what a request needs.
func statusFor(column, need string, withdrawn bool, code int) int {
	switch {
	case has(column, need, withdrawn):
		return code
	case isUser(column):
		return http.StatusForbidden
	}
	return http.StatusUnauthorized
}

// TestEveryRouteAsEveryUser sends each request and each form as each caller, with each proof, through the leader and a follower.
// Then half loses its role, and its verdicts must change as the needs say.
func TestEveryRouteAsEveryUser(t *testing.T) {
	for _, certificates := range []bool{false, true} {
		w := newWorld(t, certificates)
		began := time.Now()
		for _, prefix := range []string{"half/there", "other/there"} {
			wantOK(t, w.claim("root", prefix, w.number.Add(1)))
		}
		through := slices.Sorted(maps.Keys(w.through))
		guests := make(map[string][]*guest)
		for _, name := range through {
			guests[name] = w.guestsOf(t, name)
		}
		tryAll := func(withdrawn bool) {
			t.Run(fmt.Sprintf("certificates %v, withdrawn %v", certificates, withdrawn), func(t *testing.T) {
				for _, name := range through {
					t.Run(name, func(t *testing.T) {
						t.Parallel() // with the other member, whose console has bounds of its own
						w.tryRoutes(t, guests[name], withdrawn)
					})
				}
			})
		}
		tryAll(false)
		var open []*openPage
		for _, name := range through {
			guests[name] = slices.DeleteFunc(guests[name], func(g *guest) bool { return g.column != "half" })
			for _, g := range guests[name] {
				open = append(open, g.open(t, "/console/updates?page=/name?name=half/there"))
			}
		}
		w.revokeHalf()
		w.login()
		for _, name := range through {
			for _, g := range guests[name] {
				g.renew(t)
			}
		}
		for _, p := range open {
			p.wantEnd(t)
		}
		tryAll(true)
		t.Logf("certificates %v: %v", certificates, time.Since(began))
	}
}

// tryRoutes sends everything as the guests of one member.
func (w *world) tryRoutes(t *testing.T, guests []*guest, withdrawn bool) {
	var drains []*drain
	for _, g := range guests {
		for _, what := range []string{"holder", "host"} {
			drains = append(drains, g.newDrain(t, what))
		}
	}
	for _, g := range guests {
		for _, r := range requests {
			g.try(t, r, withdrawn)
		}
		g.tryChanges(t, withdrawn)
		if g.cookie == nil {
			g.tryLogin(t, withdrawn)
		}
	}
	root := w.guest(guests[0].via, w.proofsOf()[0], "root")
	for _, d := range drains { // late, because the console has to know the names
		d.try(t, root, withdrawn)
	}
	for _, g := range guests {
		g.tryLogout(t, withdrawn)
		if g.cookie != nil && isUser(g.column) {
			g.cookie = g.login(t, g.column, g.column, http.StatusSeeOther)
		}
	}
}

// try sends a request, and looks for names that the guest may not see.
func (g *guest) try(t *testing.T, r request, withdrawn bool) {
	t.Helper()
	addresses := []string{g.member.server.HTTPAddr()}
	if !strings.HasPrefix(r.path, "/console") {
		addresses = append(addresses, g.member.server.Addr())
	}
	for _, address := range addresses {
		code, text := g.ask(t, http.MethodGet, address, r.path, nil)
		if want := statusFor(g.column, r.need, withdrawn, r.code); code != want {
			t.Errorf("%s as %v: %d, want %d\n%s", r.path, g, code, want, text)
		}
		for _, name := range []string{"half/there", "other/there"} {
			half, _, _ := strings.Cut(name, "/")
			seen, permitted := strings.Contains(text, name), has(g.column, half, withdrawn)
			if seen && !permitted && !strings.Contains(r.path, name) || !seen && permitted && strings.HasPrefix(r.path, "/console/names?q=there") {
				t.Errorf("%s as %v shows %s: %v\n%s", r.path, g, name, seen, text)
			}
		}
	}
}
