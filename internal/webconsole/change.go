package webconsole

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

const (
	// changeLimit bounds the time for one change, and drainLimit for all changes of a drain.
	changeLimit, drainLimit = 15 * time.Second, time.Minute
	// mostDrained is how many names one drain revokes.
	mostDrained = 1000
	// mostForm is the length limit of a form, in bytes.
	mostForm = 16 << 10
	// mostReason is the length limit of a reason, in bytes.
	mostReason = 1024
	// reportedFailures is how many failed changes of a drain are listed.
	reportedFailures = 20
)

// change serves one kind of change: revoke, pin, unpin, transfer, or drain. One change runs at a time.
func (c *Console) change(what string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sender := c.viewerOf(r)
		if code, text := c.refuseChange(w, r, sender); code != 0 {
			c.message(w, r, code, "Nothing was changed", text)
			return
		}
		limit := changeLimit
		if what == "drain" {
			limit = drainLimit
		}
		// A change that has begun goes on if the browser leaves: its outcome would be unknown otherwise.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), limit)
		defer cancel()
		select {
		case c.changes <- struct{}{}:
			defer func() { <-c.changes }()
		case <-ctx.Done():
			c.message(w, r, http.StatusServiceUnavailable, "Nothing was changed", "Another change takes long.")
			return
		}
		if what == "drain" {
			c.drain(ctx, w, r, sender)
			return
		}
		name := r.PostForm.Get("name")
		err := c.changeOne(ctx, what, name, r.PostForm, sender)
		c.cfg.Log.Info("the console changed a name", "change", what, "name", name, "user", sender.user(), "error", err)
		if err == nil || errors.Is(err, backend.ErrUnknownOutcome) {
			c.reader.again()
		}
		if err != nil {
			code, title := explain(err)
			lines := []string{backend.Printable(strings.TrimPrefix(err.Error(), "leasekeeper: "))}
			if code == http.StatusConflict {
				lines = append(lines, "Go back to see the name as it is now.")
			}
			c.messageTo(w, r, code, nameLink(name), title, lines...)
			return
		}
		c.redirect(w, nameLink(name))
	})
}

// refuseChange returns a status and a reason if a change is not allowed, else 0.
func (c *Console) refuseChange(w http.ResponseWriter, r *http.Request, sender viewer) (code int, text string) {
	if text := c.readOnly(sender, ""); text != "" {
		return http.StatusForbidden, text
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return http.StatusForbidden, "The form was sent by a page of another site."
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		return http.StatusBadRequest, "The form cannot be read."
	}
	if !equal(r.PostForm.Get("csrf"), c.csrf(sender)) {
		return http.StatusForbidden, "The form is not of this console, or of an earlier start: reload the page."
	}
	if len(r.PostForm.Get("reason")) > mostReason {
		return http.StatusBadRequest, fmt.Sprintf("The reason has more than %d bytes.", mostReason)
	}
	return 0, ""
}

// changeOne changes one name.
func (c *Console) changeOne(ctx context.Context, what, name string, form url.Values, sender viewer) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	n, err := strconv.ParseUint(form.Get("token"), 10, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("%w: %q is not a token", backend.ErrInvalid, form.Get("token"))
	}
	store, ctx := c.storeOf(ctx, sender)
	o := operation{store: store, name: name, token: backend.Token(n), reason: form.Get("reason")}
	switch what {
	case "revoke":
		return o.revoke(ctx, form.Get("now") != "")
	case "pin":
		return o.pin(ctx)
	case "unpin":
		return o.unpin(ctx)
	case "transfer":
		return o.transfer(ctx, form.Get("to"))
	}
	panic(fmt.Sprintf("webconsole: the change %q is unknown", what))
}

// explain returns the status and the title of an error of a change.
func explain(err error) (code int, title string) {
	switch {
	case errors.Is(err, backend.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, "It may have been changed"
	case errors.Is(err, backend.ErrLost), errors.Is(err, backend.ErrPinned), errors.Is(err, backend.ErrStale):
		return http.StatusConflict, "Nothing was changed"
	case errors.Is(err, backend.ErrInvalid):
		return http.StatusBadRequest, "Nothing was changed"
	case errors.Is(err, backend.ErrDenied):
		return http.StatusForbidden, "Permission denied"
	case errors.Is(err, backend.ErrUnauthenticated):
		return http.StatusUnauthorized, "Nothing was changed"
	case errors.Is(err, backend.ErrUnsupported):
		return http.StatusNotImplemented, "This store cannot do that"
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrContention):
		return http.StatusServiceUnavailable, "Nothing was changed"
	}
	return http.StatusInternalServerError, "It could not be changed"
}

// drain revokes the leases of a holder, or of all holders on a host, of those names that the sender may watch and administer.
func (c *Console) drain(ctx context.Context, w http.ResponseWriter, r *http.Request, sender viewer) {
	form := r.PostForm
	key := "id"
	if form.Get("what") == "host" {
		key = "host"
	}
	v, err := newHolderOr(form.Get("what"), key, url.Values{key: {form.Get("id")}})
	if err != nil || form.Get("what") != "host" && form.Get("what") != "holder" || form.Get("reason") == "" {
		c.message(w, r, http.StatusBadRequest, "Nothing was changed", "The form has no reason, or no holder.")
		return
	}
	known, err := c.reader.get(ctx, nil)
	if err != nil || known.trouble != "" {
		c.message(w, r, http.StatusServiceUnavailable, "Nothing was changed", "The store does not answer.")
		return
	}
	var ok bool
	if sender.rights, ok = c.stillPermits(r, v); !ok { // the drain may have waited long for another change
		c.message(w, r, http.StatusForbidden, "Nothing was changed", errHidden.Error())
		return
	}
	all := v.(*holder).all(c.scopes.visible(known, sender.rights))
	revocable, kept := c.divide(all, sender)
	store, ctx := c.storeOf(ctx, sender)
	done, failed := revokeAll(ctx, store, revocable[:min(len(revocable), mostDrained)], form.Get("reason"))
	failed = append(failed, kept...)
	c.cfg.Log.Info("the console revoked all leases of a "+form.Get("what"), "id", form.Get("id"), "user", sender.user(), "revoked", done, "failed", len(failed))
	if done > 0 {
		c.reader.again()
	}
	lines := []string{fmt.Sprintf("%s of %s leases were revoked. Each name is free when the lease that its holder relies on has ended.", grouped(done), grouped(len(all)))}
	if n := len(failed); n > reportedFailures {
		failed = append(failed[:reportedFailures], fmt.Sprintf("… and %d more", n-reportedFailures))
	}
	if len(revocable) > mostDrained {
		lines = append(lines, fmt.Sprintf("One request revokes at most %d: repeat it for the rest.", mostDrained))
	}
	c.message(w, r, http.StatusOK, "Leases were revoked", append(lines, failed...)...)
}

// divide returns the names whose leases a drain by the sender revokes, and says of the others why they keep theirs. The others
// do not count toward mostDrained: a repeated drain would otherwise get no further than they do.
func (c *Console) divide(all []survey.Name, sender viewer) (revocable []survey.Name, kept []string) {
	for _, n := range all {
		switch {
		case n.Pinned != "":
			kept = append(kept, backend.Printable(n.Name)+" is pinned.")
		case c.readOnly(sender, n.Name) != "":
			kept = append(kept, backend.Printable(n.Name)+": your roles lack the right to administer it.")
		default:
			revocable = append(revocable, n)
		}
	}
	return revocable, kept
}

// revokeAll revokes the leases of names. It returns how many, and why others were not.
func revokeAll(ctx context.Context, store backend.Backend, all []survey.Name, reason string) (done int, failed []string) {
	for _, n := range all {
		o := operation{store: store, name: n.Name, token: n.Token, reason: reason}
		if err := o.revoke(ctx, false); err != nil {
			failed = append(failed, backend.Printable(n.Name+": "+err.Error()))
			continue
		}
		done++
	}
	return done, failed
}
