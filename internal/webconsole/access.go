package webconsole

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Access decides who sees the pages of a server, and who may change its names. Its methods are safe for concurrent use.
type Access interface {
	// Open returns nil if requests can be served at present, and otherwise why not, for people.
	Open() error
	// Required reports whether a request needs a user. While it does not, everyone sees everything, and nobody changes anything.
	Required() bool
	// Login checks a password and returns a token that stands for the user. It is [ErrWrongPassword] if the password is wrong.
	Login(r *http.Request, user, password string) (token string, err error)
	// Rights returns what the sender of a request may do, while a user is required. The token is that of the browser's session,
	// or "". The only error is [ErrNoUser]: the request has no user, or its token is no longer valid.
	Rights(r *http.Request, token string) (*Rights, error)
}

// Errors of [Access].
var (
	ErrNoUser        = errors.New("the request has no user, or its token has expired: log in")
	ErrWrongPassword = errors.New("there is no user with this name and password")
)

// Rights are what one user may do at one moment. They are immutable.
type Rights struct {
	User string
	// Version differs between two values of one user whose functions decide differently. It can be compared.
	Version any
	// All says that the user sees all names, and Root that it has the role root.
	All, Root bool
	// Sees reports whether the user may watch a name, and Administers whether it may change who holds it.
	Sees, Administers func(name string) bool
	// As adds the user to a context. With such a context Store makes a change if the user has the right to it. The store checks
	// the right; the console does not.
	Store backend.Backend
	As    func(context.Context) context.Context
}

// viewer is the sender of one request.
type viewer struct {
	admitted bool    // it may see pages; otherwise the rest is empty
	rights   *Rights // nil if no user is required
	session  *session
}

// isRoot reports whether nothing is hidden from a viewer.
func (v viewer) isRoot() bool { return v.admitted && (v.rights == nil || v.rights.Root) }

// user returns the viewer's user, or "".
func (v viewer) user() string {
	if v.rights == nil {
		return ""
	}
	return v.rights.User
}

type viewerKey struct{}

// viewerOf returns the sender of a request. Without Access, only browsers that have shown the token reach a page.
func (c *Console) viewerOf(r *http.Request) viewer {
	if c.cfg.Access == nil {
		return viewer{admitted: true}
	}
	v, _ := r.Context().Value(viewerKey{}).(viewer)
	return v
}

// identify finds out who sends a request.
func (c *Console) identify(r *http.Request) (viewer, error) {
	if !c.cfg.Access.Required() {
		return viewer{admitted: true}, nil
	}
	s := c.sessions.of(r)
	token := ""
	switch {
	case s != nil:
		token = s.token
	case r.Header.Get("Authorization") != "":
		// The check of an unknown token may wait for the store. Browsers that have logged in do not wait for these.
		if !c.tokens.take() {
			return viewer{}, errBusy
		}
		defer c.tokens.free()
	}
	rights, err := c.cfg.Access.Rights(r, token)
	if errors.Is(err, ErrNoUser) && s != nil {
		c.sessions.end(s)
	}
	if err != nil {
		return viewer{}, err
	}
	return viewer{true, rights, s}, nil
}

// errBusy refuses to check a token.
var errBusy = errors.New("the console checks as many tokens as it may: try again")

// withAccess serves the requests that [Config.Access] admits. It answers other requests with the form to log in, or with status
// 401.
func (c *Console) withAccess(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := c.identify(r)
		switch {
		case err == nil:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewerKey{}, v)))
		case errors.Is(err, errBusy):
			c.busy(w, err.Error())
		case r.Method != http.MethodGet:
			c.message(w, r, http.StatusUnauthorized, "Nothing was changed", "You are no longer logged in: go back, and log in again.")
		case followsForeignLink(r):
			lead(w, "./"+strings.TrimPrefix(r.URL.RequestURI(), "/"))
		case r.URL.Path == "/updates":
			http.Error(w, err.Error(), http.StatusUnauthorized)
		default:
			c.askLogin(w, r, http.StatusUnauthorized, r.URL.RequestURI(), "")
		}
	})
}

// followsForeignLink reports whether a browser follows a link of another site. It then sends no cookie.
func followsForeignLink(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") == "navigate"
}

// isForeign reports whether a page of another site sends a request without leading its reader here.
func isForeign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && !followsForeignLink(r)
}

// errHidden refuses a page about something that the user may not see. It does not say whether that exists.
var errHidden = errors.New("you may not see this: it needs a right that your roles do not give")

// permits returns errHidden if a viewer may not see a page at all. Other pages show what the viewer may see.
func (v viewer) permits(p view) error {
	if v.rights == nil {
		return nil
	}
	switch p := p.(type) {
	case *oneName:
		if !v.rights.Sees(p.name) {
			return errHidden
		}
	case *audit, *foreignView:
		if !v.rights.Root {
			return errHidden
		}
	}
	return nil
}

// csrf returns the secret of the viewer's forms.
func (c *Console) csrf(v viewer) string {
	who := ""
	switch {
	case v.session != nil:
		who = "session " + v.session.id
	case v.rights != nil:
		who = "user " + v.rights.User
	}
	if who == "" {
		return c.keys.csrf
	}
	sum := sha256.Sum256([]byte(c.keys.csrf + " " + who))
	return hex.EncodeToString(sum[:])
}

// readOnly returns why the sender of a request cannot change a name, or "" if it can. An empty name stands for some names.
func (c *Console) readOnly(v viewer, name string) string {
	switch {
	case c.cfg.Access == nil && c.cfg.Write:
		return ""
	case c.cfg.Access == nil:
		return "This console is read-only: start it with --write to revoke, pin and transfer here."
	case !v.admitted:
		return "This browser has not logged in."
	case v.rights == nil:
		return "This console is read-only: rights to change names come from users, and access is not enabled."
	case name != "" && !v.rights.Administers(name):
		return "You may not change this name: your roles lack the right to administer it."
	}
	return ""
}

// storeOf returns the store to which the changes of a viewer go, and the context for them.
func (c *Console) storeOf(ctx context.Context, v viewer) (backend.Backend, context.Context) {
	if v.rights == nil {
		return c.cfg.Store, ctx
	}
	return v.rights.Store, v.rights.As(ctx)
}
