package webconsole

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// pageLimit bounds the time for one page.
	pageLimit = 20 * time.Second
	// mostQuery is the length limit of a query, in bytes. A name of the longest kind fits three times, escaped.
	mostQuery = 8 << 10
)

// policy is the content policy of all answers. It allows what the console itself needs, and nothing from elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if c.cfg.Crowded != nil && c.cfg.Crowded() {
		h.Set("Connection", "close")
	}
	var closed error
	if c.cfg.Access != nil {
		closed = c.cfg.Access.Open()
	}
	switch {
	case closed != nil:
		http.Error(w, closed.Error(), http.StatusForbidden)
	case c.cfg.Access != nil && isForeign(r):
		http.Error(w, "requests from pages of other sites are refused", http.StatusForbidden)
	case c.cfg.Access == nil && !slices.Contains(c.cfg.Hosts, strings.ToLower(r.Host)):
		http.Error(w, "this console is not known as "+backend.Printable(r.Host)+": open the link that the command printed", http.StatusMisdirectedRequest)
	case len(r.URL.RawQuery) > mostQuery:
		http.Error(w, "the query is too long", http.StatusRequestURITooLong)
	default:
		c.mux.ServeHTTP(w, r)
	}
}

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux.Handle("GET /assets/", c.limited(c.requests, http.StripPrefix("/assets/", http.FileServerFS(assets))))
	mux.Handle("GET /updates", c.admitted(http.HandlerFunc(c.updates)))
	for _, what := range []string{"revoke", "pin", "unpin", "transfer", "drain"} {
		mux.Handle("POST /"+what, c.admitted(c.limited(c.forms, c.change(what)))) // one waits for another
	}
	if c.cfg.Access != nil {
		mux.Handle("GET /login", c.limited(c.requests, http.HandlerFunc(c.loginPage)))
		mux.Handle("POST /login", http.HandlerFunc(c.login))
		mux.Handle("POST /logout", c.admitted(c.limited(c.requests, http.HandlerFunc(c.logout))))
	}
	mux.Handle("GET /", c.admitted(c.limited(c.requests, http.HandlerFunc(c.page))))
	return mux
}

// limited refuses requests while no place is free.
func (c *Console) limited(p places, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.take() {
			c.busy(w, "the console serves as many requests as it may: try again")
			return
		}
		defer p.free()
		next.ServeHTTP(w, r)
	})
}

// busy refuses a request. With Access the connection ends, so that it takes no place from other requests of the server.
func (c *Console) busy(w http.ResponseWriter, text string) {
	if c.cfg.Access != nil {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Retry-After", "5")
	http.Error(w, text, http.StatusServiceUnavailable)
}

// admitted serves a browser that has shown the token. With Access it serves the requests that Access admits.
func (c *Console) admitted(next http.Handler) http.Handler {
	if c.cfg.Access != nil {
		return c.withAccess(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shown := r.URL.Query().Get("token"); shown != "" && r.Method == http.MethodGet {
			c.admit(w, r, shown)
			return
		}
		cookie, err := r.Cookie(cookieName("console", r))
		if err != nil || !equal(cookie.Value, c.keys.session) {
			http.Error(w, "this browser has not shown the token of the console: open the link that the command printed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit gives a browser that shows the token a cookie, and leads it to the page without the token. A redirect would not
// do: after a link from another site, the browser would not send the cookie along.
func (c *Console) admit(w http.ResponseWriter, r *http.Request, shown string) {
	if !equal(shown, c.keys.token) {
		http.Error(w, "the token is wrong, or of an earlier start: open the link that the command printed last", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName("console", r), Value: c.keys.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	q := r.URL.Query()
	q.Del("token")
	target := "./" + strings.TrimPrefix(r.URL.Path, "/")
	if text := q.Encode(); text != "" {
		target += "?" + text
	}
	lead(w, target)
}

// lead leads a browser to a page of the console, relative to this one. The browser then sends its cookie, because the link is
// the console's own.
func lead(w http.ResponseWriter, target string) {
	w.Header().Set("Refresh", "0; url="+target)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("The console opens.\n")) // fails if the browser has gone
}

// cookieName is the name of a cookie. Cookies do not tell ports apart, and several consoles may run on one machine.
func cookieName(what string, r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "default"
	}
	return "leasekeeper-" + what + "-" + port
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// page serves one page, as HTML or as JSON.
func (c *Console) page(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	v, ok, err := build(r.URL.Path, query)
	switch {
	case !ok:
		c.message(w, r, http.StatusNotFound, "There is no such page", "The console has no page at this address.")
		return
	case err != nil:
		c.message(w, r, http.StatusBadRequest, "That makes no sense", err.Error())
		return
	}
	if err := c.viewerOf(r).permits(v); err != nil {
		c.message(w, r, http.StatusForbidden, "Permission denied", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageLimit)
	defer cancel()
	defer context.AfterFunc(c.serving, cancel)()
	known, err := c.reader.get(ctx, v.before())
	if err != nil {
		c.message(w, r, http.StatusServiceUnavailable, "The store takes long to answer", "Reload the page to try again.")
		return
	}
	rights, ok := c.stillPermits(r, v) // reading may have taken long
	if !ok {
		c.message(w, r, http.StatusForbidden, "Permission denied", errHidden.Error())
		return
	}
	now := c.now()
	p := v.make(c.scopes.visible(known, rights), now)
	if query.Get("format") == "json" {
		writeJSON(w, p.data)
		return
	}
	c.write(w, r, http.StatusOK, p, "updates?"+url.Values{"page": {r.URL.RequestURI()}}.Encode())
}

// write sends a page as HTML. updates is the link to its updates, or "".
func (c *Console) write(w http.ResponseWriter, r *http.Request, code int, p page, updates string) {
	sender, about := c.viewerOf(r), ""
	if p.cells == nil {
		p.cells = make(cells)
		k := new(knowledge) // for a viewer that may not see the pages
		if sender.admitted {
			k, _ = c.reader.latest()
			k = c.scopes.visible(k, sender.rights)
		}
		frame(p.cells, k)
	}
	query := r.URL.Query()
	query.Set("format", "json")
	if b, ok := p.body.(oneNameBody); ok {
		about = b.Name
	}
	readOnly := c.readOnly(sender, about)
	var b bytes.Buffer
	err := render(&b, sheet{
		Kind: p.kind, Title: p.title, Cells: p.cells, Body: p.body, Store: c.cfg.Label, Write: readOnly == "", ReadOnly: readOnly, CSRF: c.csrf(sender),
		Updates: updates, JSON: "?" + query.Encode(), Server: c.server, Foreign: len(c.foreign) > 0 && sender.isRoot(), Audit: c.server && sender.isRoot(),
		User: sender.user(), Session: sender.session != nil,
	})
	if err != nil {
		c.cfg.Log.Error("a page of the console failed", "page", p.kind, "error", err)
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	w.Write(b.Bytes()) // fails if the browser has gone
}

// messageBody is what the template of a message needs.
type messageBody struct {
	Title string
	Lines []string
	Back  string
}

// message sends a page with a text, or the text as JSON.
func (c *Console) message(w http.ResponseWriter, r *http.Request, code int, title string, lines ...string) {
	c.messageTo(w, r, code, ".", title, lines...)
}

// messageTo is message with the page to which its link leads.
func (c *Console) messageTo(w http.ResponseWriter, r *http.Request, code int, back, title string, lines ...string) {
	if r.URL.Query().Get("format") == "json" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(map[string]string{"error": title + ": " + strings.Join(lines, " ")}) // fails if the browser has gone
		return
	}
	c.write(w, r, code, page{kind: "message", title: title, body: messageBody{Title: title, Lines: lines, Back: back}}, "")
}

func writeJSON(w http.ResponseWriter, data any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(data) // fails if the browser has gone
}

// updates serves the updates of the page that the query names.
func (c *Console) updates(w http.ResponseWriter, r *http.Request) {
	v, err := viewOf(r.URL.Query().Get("page"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := c.viewerOf(r).permits(v); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if !c.pages.take() {
		c.busy(w, "as many pages are open as the console updates: close one, or reload this page now and then")
		return
	}
	defer c.pages.free()
	c.serveUpdates(w, r, v)
}

// viewOf returns the view of the address of a page, without scheme and host.
func viewOf(address string) (view, error) {
	u, err := url.ParseRequestURI(address)
	if err != nil {
		return nil, errors.New("the query has no page")
	}
	v, ok, err := build(u.Path, u.Query())
	if !ok {
		return nil, errors.New("there is no such page")
	}
	return v, err
}
