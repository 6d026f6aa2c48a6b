package rightsmatrix

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// infoOf returns what root knows of a name.
func (w *world) infoOf(t *testing.T, name string) *leasekeeperv1.NameInfo {
	t.Helper()
	ctx, cancel := w.as("root")
	defer cancel()
	resp, err := leasekeeperv1.NewLeasekeeperClient(w.leader.conn).Get(ctx, &leasekeeperv1.GetRequest{Name: name})
	wantOK(t, err)
	return resp.Info
}

// tryChanges sends each form about one name for a name of each half. Only those with the right have an effect.
func (g *guest) tryChanges(t *testing.T, withdrawn bool) {
	t.Helper()
	csrf := g.csrf(t)
	for _, half := range []string{"half", "other"} {
		for _, change := range []string{"pin", "unpin", "transfer", "revoke"} {
			n := g.number.Add(1)
			name := fmt.Sprint(half, "/c", n)
			wantOK(t, g.claim("root", half+"/c", n))
			before := g.infoOf(t, name)
			if change == "unpin" {
				ctx, cancel := g.as("root")
				_, err := leasekeeperv1.NewLeasekeeperClient(g.leader.conn).Pin(ctx, &leasekeeperv1.PinRequest{Name: name, Reason: "kept"})
				cancel()
				wantOK(t, err)
			}
			code, text := g.send(t, change, url.Values{
				"csrf": {csrf}, "name": {name}, "token": {fmt.Sprint(before.Token)}, "reason": {"r"}, "now": {"1"},
			})
			done := http.StatusSeeOther
			if change == "transfer" {
				done = http.StatusBadRequest // nobody waits
			}
			if want := statusFor(g.column, half, withdrawn, done); code != want {
				t.Errorf("%s of %s as %v: %d, want %d\n%s", change, name, g, code, want, text)
			}
			after, permitted := g.infoOf(t, name), has(g.column, half, withdrawn)
			if after.Pinned != (change == "pin" && permitted || change == "unpin" && !permitted) || after.Held != (change != "revoke" || !permitted) {
				t.Errorf("%s of %s as %v: the name is %v", change, name, g, after)
			}
		}
	}
}

// drain is one holder or one host with a name of each half, which a guest drains.
type drain struct {
	*guest
	what, id string
	names    map[string]string // by half
}

// newDrain claims the names of a holder or a host, as root.
func (g *guest) newDrain(t *testing.T, what string) *drain {
	t.Helper()
	n := g.number.Add(1)
	d := &drain{g, what, fmt.Sprint(what, n), make(map[string]string)}
	for _, half := range []string{"half", "other"} {
		d.names[half] = fmt.Sprint(half, "/d", n)
		wantOK(t, g.claimFor("root", d.names[half], g.number.Add(1), &leasekeeperv1.Holder{Id: fmt.Sprint("holder", n), Host: fmt.Sprint("host", n)}))
	}
	return d
}

// try drains, after root sees both names in the console of the same member. It must revoke exactly the names that the guest may
// administer, and say nothing of the others.
func (d *drain) try(t *testing.T, root *guest, withdrawn bool) {
	t.Helper()
	page := d.what + "?" + url.Values{map[string]string{"holder": "id", "host": "host"}[d.what]: {d.id}, "format": {"json"}}.Encode()
	eventually(t, "the console knows the names", func() bool {
		_, text := root.get(t, page)
		return strings.Contains(text, d.names["half"]) && strings.Contains(text, d.names["other"])
	})
	code, text := d.send(t, "drain", url.Values{"csrf": {d.csrf(t)}, "what": {d.what}, "id": {d.id}, "reason": {"r"}})
	if want := statusFor(d.column, "user", withdrawn, http.StatusOK); code != want {
		t.Errorf("drain of %s as %v: %d, want %d\n%s", d.id, d.guest, code, want, text)
	}
	revoked := 0
	for half, name := range d.names {
		permitted := has(d.column, half, withdrawn)
		if permitted {
			revoked++
		}
		if info := d.infoOf(t, name); info.Revoked != permitted {
			t.Errorf("drain of %s as %v: %s is %v", d.id, d.guest, name, info)
		}
		if !permitted && strings.Contains(text, name) {
			t.Errorf("drain of %s as %v shows %s:\n%s", d.id, d.guest, name, text)
		}
	}
	if said := fmt.Sprintf("%d of %d leases were revoked.", revoked, revoked); isUser(d.column) && !strings.Contains(text, said) {
		t.Errorf("drain of %s as %v does not say %q:\n%s", d.id, d.guest, said, text)
	}
}

// login sends the form to log in, wants a status, and returns the cookie of the session.
func (g *guest) login(t *testing.T, user, password string, want int) *http.Cookie {
	t.Helper()
	resp, text := g.do(t, http.MethodPost, g.member.server.HTTPAddr(), "/console/login", url.Values{"user": {user}, "password": {password}})
	cookies := resp.Cookies()
	if resp.StatusCode != want || (len(cookies) == 1) != (want == http.StatusSeeOther) {
		t.Fatalf("login of %q as %v: %d with %d cookies, want %d\n%s", user, g, resp.StatusCode, len(cookies), want, text)
	}
	if len(cookies) == 0 {
		return nil
	}
	return cookies[0]
}

// tryLogin logs in as half. The password counts, and not the guest's other proof; then the session counts before that proof.
func (g *guest) tryLogin(t *testing.T, withdrawn bool) {
	t.Helper()
	for _, wrong := range []url.Values{{"user": {"half"}, "password": {"root"}}, {"user": {"half"}, "password": {""}}, {"user": {"absent"}, "password": {"absent"}}} {
		g.login(t, wrong.Get("user"), wrong.Get("password"), http.StatusUnauthorized)
	}
	session := *g
	session.column, session.what = "half", fmt.Sprintf("half by a session of %v", g)
	session.without = g
	session.cookie = g.login(t, "half", "half", http.StatusSeeOther)
	for _, r := range requests {
		if strings.HasPrefix(r.path, "/console/names") || strings.HasPrefix(r.path, "/console/audit") {
			session.try(t, r, withdrawn)
		}
	}
	session.tryLogout(t, withdrawn)
}

// tryLogout logs out. That ends the session, if the guest has one, and no other proof.
func (g *guest) tryLogout(t *testing.T, withdrawn bool) {
	t.Helper()
	csrf := g.csrf(t)
	for _, sent := range []string{"wrong", csrf} {
		status := http.StatusForbidden // the form is not of this console
		if sent == csrf {
			status = http.StatusSeeOther
		}
		code, text := g.send(t, "logout", url.Values{"csrf": {sent}})
		if want := statusFor(g.column, "user", withdrawn, status); code != want {
			t.Errorf("logout as %v: %d, want %d\n%s", g, code, want, text)
		}
		admitted := isUser(g.column)
		if g.cookie != nil && sent == csrf {
			admitted = g.without != nil && isUser(g.without.column)
		}
		if code, text := g.get(t, "names"); (code == http.StatusOK) != admitted {
			t.Errorf("after logout as %v: %d\n%s", g, code, text)
		}
	}
}
