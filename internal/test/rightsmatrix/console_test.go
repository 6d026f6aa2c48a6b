package rightsmatrix

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// consolePages are pages of the console, with the status that each caller receives. The names below half/ and other/ are held.
var consolePages = map[string]map[string]int{
	"":                            {"bare": 200, "half": 200, "root": 200},
	"?format=json":                {"bare": 200, "half": 200, "root": 200},
	"names?q=there&format=json":   {"bare": 200, "half": 200, "root": 200},
	"holder?id=root&format=json":  {"bare": 200, "half": 200, "root": 200},
	"host?host=none&format=json":  {"bare": 200, "half": 200, "root": 200},
	"store?format=json":           {"bare": 200, "half": 200, "root": 200},
	"cluster?format=json":         {"bare": 200, "half": 200, "root": 200},
	"audit?format=json":           {"bare": 403, "half": 403, "root": 200},
	"foreign?format=json":         {"bare": 403, "half": 403, "root": 200},
	"name?name=half/there":        {"bare": 403, "half": 200, "root": 200},
	"name?name=half/absent":       {"bare": 403, "half": 200, "root": 200},
	"name?name=other/there":       {"bare": 403, "half": 403, "root": 200},
	"name?name=other/absent":      {"bare": 403, "half": 403, "root": 200},
	"updates?page=/audit":         {"bare": 403, "half": 403},
	"updates?page=/name?name=o/x": {"bare": 403, "half": 403},
	"login":                       {"nobody": 200, "forged": 200, "stranger": 200, "bare": 200, "half": 200, "root": 200},
}

// guest is a caller of the console.
type guest struct {
	*world
	client  *client
	address string
	token   string
}

func (g *guest) ask(method, path string, form url.Values) (code int, text string) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.context(), method, g.client.scheme+"://"+g.address+"/console/"+path, strings.NewReader(form.Encode()))
	wantOK(g.t, err)
	if g.token != "" {
		r.Header.Set("Authorization", g.token)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := g.client.http.Do(r)
	wantOK(g.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	wantOK(g.t, err)
	return resp.StatusCode, string(body)
}

// TestConsoleAsEveryUser requests each page as each caller, and tries to change names of both halves.
func TestConsoleAsEveryUser(t *testing.T) {
	for _, certificates := range []bool{false, true} {
		w := newWorld(t, certificates)
		for _, prefix := range []string{"half/there", "other/there"} {
			wantOK(t, w.claim("root", prefix, w.number.Add(1)))
		}
		for through, m := range w.through {
			for _, p := range w.proofsOf() {
				for _, column := range p.columns {
					g := &guest{w, w.dial(m, p.certificate(column)), m.server.HTTPAddr(), p.token(column)}
					what := fmt.Sprintf("%s by %s through the %s", column, p.name, through)
					for path, codes := range consolePages {
						want, ok := codes[column]
						switch {
						case !ok && (column == "nobody" || column == "forged" || column == "stranger"):
							want = http.StatusUnauthorized
						case !ok:
							continue // it would stay open
						}
						code, text := g.ask(http.MethodGet, path, nil)
						if code != want {
							t.Errorf("%s as %s: %d, want %d\n%s", path, what, code, want, text)
						}
						if path == "names?q=there&format=json" {
							seen := [2]bool{strings.Contains(text, "half/there"), strings.Contains(text, "other/there")}
							if seen != [2]bool{column == "half" || column == "root", column == "root"} {
								t.Errorf("%s as %s shows the halves: %v\n%s", path, what, seen, text)
							}
						}
						if column != "root" && strings.Contains(text, "other/there") && !strings.HasPrefix(path, "name?") {
							t.Errorf("%s as %s shows a name of the other half:\n%s", path, what, text)
						}
						if column != "root" && column != "half" && strings.Contains(text, "half/there") && !strings.HasPrefix(path, "name?") {
							t.Errorf("%s as %s shows a name:\n%s", path, what, text)
						}
					}
					w.tryChanges(t, g, column, what)
				}
			}
		}
	}
}

var csrfField = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// tryChanges sends each form of the console about a name of each half. Only those with the right have an effect.
func (w *world) tryChanges(t *testing.T, g *guest, column, what string) {
	t.Helper()
	csrf := "none"
	if _, text := g.ask(http.MethodGet, "holder?id=x", nil); csrfField.MatchString(text) {
		csrf = csrfField.FindStringSubmatch(text)[1]
	} else if column == "bare" || column == "half" || column == "root" {
		t.Errorf("the page of a holder has no form for %s:\n%s", what, text)
	}
	names := leasekeeperv1.NewLeasekeeperClient(w.leader.conn)
	for _, prefix := range []string{"half/c", "other/c"} {
		permitted := column == "root" || column == "half" && prefix == "half/c"
		for _, change := range []string{"pin", "unpin", "transfer", "revoke"} {
			n := w.number.Add(1)
			name := fmt.Sprint(prefix, n)
			wantOK(t, w.claim("root", prefix, n))
			ctx, cancel := w.as("root")
			before, err := names.Get(ctx, &leasekeeperv1.GetRequest{Name: name})
			wantOK(t, err)
			if change == "unpin" {
				_, err = names.Pin(ctx, &leasekeeperv1.PinRequest{Name: name, Reason: "kept"})
				wantOK(t, err)
			}
			code, text := g.ask(http.MethodPost, change, url.Values{
				"csrf": {csrf}, "name": {name}, "token": {fmt.Sprint(before.Info.Token)}, "reason": {"r"}, "now": {"1"},
			})
			after, err := names.Get(ctx, &leasekeeperv1.GetRequest{Name: name})
			wantOK(t, err)
			cancel()
			want := map[string]bool{"pin": after.Info.Pinned, "unpin": !after.Info.Pinned, "revoke": !after.Info.Held, "transfer": code == http.StatusBadRequest}[change]
			if want != permitted {
				t.Errorf("%s of %s as %s: %d, and the name is %v\n%s", change, name, what, code, after.Info, text)
			}
			if !permitted && code != http.StatusForbidden && code != http.StatusUnauthorized {
				t.Errorf("%s of %s as %s: %d\n%s", change, name, what, code, text)
			}
		}
	}
}
