package rightsmatrix

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// guest is a caller of a member over HTTP. With a cookie, it has logged in with its password.
type guest struct {
	*world
	*client
	what    string // for messages
	via     string // leader or follower
	column  string
	proof   proof
	token   string
	cookie  *http.Cookie
	without *guest // that the member sees if the session has ended; nil for nobody
}

func (g *guest) String() string { return g.what }

// guestsOf makes the guests of a member, with each proof of the cluster. A session goes before a certificate: browsers that have
// logged in have the certificate of a stranger.
func (w *world) guestsOf(t *testing.T, through string) (all []*guest) {
	t.Helper()
	stranger := func(string) string { return "stranger" }
	none := func(string) string { return "" }
	password := proof{"password", []string{"forged", "bare", "half", "root"}, stranger, none}
	for _, p := range append(w.proofsOf(), password) {
		for _, column := range p.columns {
			g := w.guest(through, p, column)
			switch {
			case p.name == "password" && column == "forged":
				g.cookie = w.guest(through, p, column).login(t, "bare", "bare", http.StatusSeeOther)
				g.cookie.Value = strings.Repeat("0", len(g.cookie.Value))
			case p.name == "password":
				g.cookie = g.login(t, column, column, http.StatusSeeOther)
			}
			all = append(all, g)
		}
	}
	return all
}

func (w *world) guest(through string, p proof, column string) *guest {
	w.t.Helper()
	g := &guest{
		world: w, via: through, client: w.dial(w.through[through], p.certificate(column)), column: column, proof: p, token: p.token(column),
		what: fmt.Sprintf("%s by %s through the %s", column, p.name, through),
	}
	g.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return g
}

// renew gives a guest a proof of its present rights. The change of rights has ended JSON Web Tokens, and sessions with them.
func (g *guest) renew(t *testing.T) {
	t.Helper()
	g.token = g.proof.token(g.column)
	if g.cookie == nil {
		return
	}
	code, text := g.get(t, "names")
	switch {
	case g.ca == nil && code != http.StatusOK, g.ca != nil && code != http.StatusUnauthorized:
		t.Errorf("the session of %v after the change of rights: %d\n%s", g, code, text)
	case g.ca != nil:
		g.cookie = nil
		g.cookie = g.login(t, g.column, g.column, http.StatusSeeOther)
	}
}

// request makes a request of the guest.
func (g *guest) request(ctx context.Context, t *testing.T, method, address, path string, form url.Values) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, g.client.scheme+"://"+address+path, strings.NewReader(form.Encode()))
	wantOK(t, err)
	if g.token != "" {
		r.Header.Set("Authorization", g.token)
	}
	if g.cookie != nil {
		r.AddCookie(g.cookie)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

// do sends a request, and repeats it while the member is not ready for a moment. It reads no more than the first of the updates of
// a page.
func (g *guest) do(t *testing.T, method, address, path string, form url.Values) (resp *http.Response, text string) {
	t.Helper()
	for range retries {
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		var err error
		resp, err = g.http.Do(g.request(ctx, t, method, address, path, form))
		wantOK(t, err)
		var body []byte
		if resp.Header.Get("Content-Type") == "text/event-stream" {
			body, err = bufio.NewReader(resp.Body).ReadBytes('\n')
		} else {
			body, err = io.ReadAll(resp.Body)
		}
		resp.Body.Close()
		cancel()
		wantOK(t, err)
		text = string(body)
		if resp.StatusCode != http.StatusServiceUnavailable {
			break
		}
		eventually(t, "the member is ready", func() bool { return g.member.node.CheckReady() == nil })
	}
	return resp, text
}

func (g *guest) ask(t *testing.T, method, address, path string, form url.Values) (code int, text string) {
	t.Helper()
	resp, text := g.do(t, method, address, path, form)
	return resp.StatusCode, text
}

// get requests a page of the console.
func (g *guest) get(t *testing.T, path string) (code int, text string) {
	t.Helper()
	return g.ask(t, http.MethodGet, g.member.server.HTTPAddr(), "/console/"+path, nil)
}

// send sends a form of the console.
func (g *guest) send(t *testing.T, path string, form url.Values) (code int, text string) {
	t.Helper()
	return g.ask(t, http.MethodPost, g.member.server.HTTPAddr(), "/console/"+path, form)
}

var csrfField = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// csrf returns the secret of the forms on the guest's pages. Only users get one.
func (g *guest) csrf(t *testing.T) string {
	t.Helper()
	_, text := g.get(t, "holder?id=x")
	found := csrfField.FindStringSubmatch(text)
	if (found != nil) != isUser(g.column) {
		t.Errorf("the page of a holder has a form for %v: %v\n%s", g, found != nil, text)
	}
	if found == nil {
		return "none"
	}
	return found[1]
}

// openPage are the updates of an open page.
type openPage struct {
	*guest
	body io.ReadCloser
}

// open opens the updates of a page, and waits for the first.
func (g *guest) open(t *testing.T, path string) *openPage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	resp, err := g.http.Do(g.request(ctx, t, http.MethodGet, g.member.server.HTTPAddr(), path, nil))
	wantOK(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s as %v: %d", path, g, resp.StatusCode)
	}
	var begin [1]byte
	if _, err := io.ReadFull(resp.Body, begin[:]); err != nil {
		t.Errorf("%s as %v has no update: %v", path, g, err)
	}
	return &openPage{g, resp.Body}
}

// wantEnd waits until the member ends the updates.
func (p *openPage) wantEnd(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, p.body); err != nil {
		t.Errorf("the open page of %v has not ended: %v", p.guest, err)
	}
}
