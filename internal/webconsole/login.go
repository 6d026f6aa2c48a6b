package webconsole

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
)

// mostCredential is the length limit of a user's name, and of a password, in bytes.
const mostCredential = 4 << 10

// loginBody is what the template of the login needs.
type loginBody struct {
	Next    string // the address of the page to which the login leads, without scheme and host
	Failure string // why the last attempt failed, or ""
	Secure  bool   // a password may be sent over this connection
}

// askLogin sends the form to log in. next is the address to which it leads.
func (c *Console) askLogin(w http.ResponseWriter, r *http.Request, code int, next, failure string) {
	if r.URL.Query().Get("format") == "json" {
		c.message(w, r, code, "No user", ErrNoUser.Error())
		return
	}
	c.write(w, r, code, page{kind: "login", title: "Log in", body: loginBody{next, failure, mayCarryPassword(r)}}, "")
}

// mayCarryPassword reports whether nobody else can read what a connection carries.
func mayCarryPassword(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// loginPage serves the form itself.
func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	c.askLogin(w, r, http.StatusOK, "/", "")
}

// login serves the form's request.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	if !c.cfg.Access.Required() {
		c.message(w, r, http.StatusConflict, "Nobody needs to log in", "Access is not enabled, so the server has no users in force.")
		return
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		c.message(w, r, http.StatusForbidden, "You are not logged in", "The form was sent by a page of another site.")
		return
	}
	if !mayCarryPassword(r) {
		c.message(w, r, http.StatusForbidden, "You are not logged in", "Others could read the password: reach the console over TLS (--cert), or on the server's own machine.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		c.message(w, r, http.StatusBadRequest, "You are not logged in", "The form cannot be read.")
		return
	}
	user, password, next := r.PostForm.Get("user"), r.PostForm.Get("password"), r.PostForm.Get("next")
	if _, err := viewOf(next); err != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		next = "/"
	}
	if user == "" || len(user) > mostCredential || len(password) > mostCredential {
		c.askLogin(w, r, http.StatusUnauthorized, next, ErrWrongPassword.Error())
		return
	}
	if !c.logins.take() {
		c.busy(w, "the console checks as many logins as it may: try again")
		return
	}
	defer c.logins.free()
	token, err := c.cfg.Access.Login(r, user, password)
	switch {
	case errors.Is(err, ErrWrongPassword):
		c.askLogin(w, r, http.StatusUnauthorized, next, err.Error())
	case err != nil:
		c.message(w, r, http.StatusServiceUnavailable, "You are not logged in", backend.Printable(err.Error()))
	default:
		http.SetCookie(w, c.cookie(r, c.sessions.begin(user, token).id))
		c.redirect(w, strings.TrimPrefix(next, "/"))
	}
}

// logout ends the session of a browser.
func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	v := c.viewerOf(r)
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := http.NewCrossOriginProtection().Check(r); err != nil || r.ParseForm() != nil || !equal(r.PostForm.Get("csrf"), c.csrf(v)) {
		c.message(w, r, http.StatusForbidden, "You are still logged in", "The form is not of this console: reload the page.")
		return
	}
	if v.session != nil {
		c.sessions.end(v.session)
	}
	http.SetCookie(w, c.cookie(r, ""))
	c.redirect(w, "login")
}

// redirect leads a browser to a page after a form. target is relative to the console.
func (c *Console) redirect(w http.ResponseWriter, target string) {
	w.Header().Set("Location", c.cfg.Base+"/"+target)
	w.WriteHeader(http.StatusSeeOther)
}
