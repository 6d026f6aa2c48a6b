package webconsole

import (
	"net/url"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// holder is the view of the names of one holder, or of all holders on one host.
type holder struct {
	names
	what, id string // "holder" or "host", and which
	// held are all its names in the survey heldIn.
	held   []survey.Name
	heldIn *survey.Survey
}

func newHolder(q url.Values) (view, error) { return newHolderOr("holder", "id", q) }

func newHost(q url.Values) (view, error) { return newHolderOr("host", "host", q) }

func newHolderOr(what, key string, q url.Values) (view, error) {
	id := q.Get(key)
	if id == "" {
		return nil, badQuery("no " + what + " is given: write ?" + key + "=, and which")
	}
	from, err := number(q, "from")
	if err != nil {
		return nil, err
	}
	v := &holder{what: what, id: id}
	v.path, v.fixed = what, url.Values{key: {id}}
	v.query = survey.Query{From: from, Most: rowsPerPage, State: survey.Held}
	if what == "holder" {
		v.query.Holder = id
	} else {
		v.query.Host = id
	}
	return v, nil
}

// holderJSON is a holder or a host for programs.
type holderJSON struct {
	Holder string `json:"holder,omitempty"`
	Host   string `json:"host,omitempty"`
	// What happens if all its names are revoked.
	Drain drainJSON `json:"drain"`
	namesJSON
}

// drainJSON says what happens to the names of a holder or a host if all are revoked.
type drainJSON struct {
	Moves  int `json:"moves"`   // to a claim that waits
	Free   int `json:"free"`    // no claim waits
	Either int `json:"unknown"` // the store does not tell whether a claim waits
	Pinned int `json:"pinned"`  // and stay
}

// drainOf counts what a drain does.
func drainOf(names []survey.Name) (d drainJSON) {
	for _, n := range names {
		switch {
		case n.Pinned != "":
			d.Pinned++
		case n.Waiting < 0:
			d.Either++
		case n.Waiting == 0:
			d.Free++
		default:
			d.Moves++
		}
	}
	return d
}

// holderBody is what the template of a holder or a host needs.
type holderBody struct {
	namesBody
	What, ID, Title string
	Host, HostLink  string // of a holder, if its card has one
	CanRevoke       bool
	Drain           drainJSON
}

func (v *holder) make(k *knowledge, now moment) page {
	c := make(cells)
	frame(c, k)
	p := page{kind: "holder", cells: c}
	body := holderBody{What: v.what, ID: v.id, Title: backend.Printable(v.id), CanRevoke: k.store.abilities.Revoke}
	data := holderJSON{}
	all := v.all(k)
	body.Drain = drainOf(all)
	data.Drain = body.Drain
	body.namesBody, data.namesJSON = v.list(c, k, now, &p)
	if v.what == "holder" {
		p.title, data.Holder = "Holder "+body.Title, v.id
		for _, n := range all {
			if n.Holder.Card.Host != "" {
				body.Host, body.HostLink = backend.Printable(n.Holder.Card.Host), link("host", "host", n.Holder.Card.Host)
			}
		}
	} else {
		p.title, data.Host = "Host "+body.Title, v.id
	}
	c.number("drain.moves", body.Drain.Moves, true, plain)
	c.number("drain.free", body.Drain.Free, true, plain)
	c.number("drain.unknown", body.Drain.Either, true, plain)
	c.number("drain.pinned", body.Drain.Pinned, true, toneIf(body.Drain.Pinned > 0, warn))
	p.body, p.data = body, data
	return p
}

// all returns all names of the holder or host.
func (v *holder) all(k *knowledge) []survey.Name {
	if k.survey == nil {
		return nil
	}
	if k.survey != v.heldIn {
		q := v.query
		q.From, q.Most = 0, len(k.survey.Names)+1
		v.held, v.heldIn = k.survey.Select(q).Names, k.survey
	}
	return v.held
}
