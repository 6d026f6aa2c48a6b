package webconsole

import (
	"net/url"
	"time"
)

// storeView is the view of what the store is and can do.
type storeView struct{}

func newStore(url.Values) (view, error) { return storeView{}, nil }

// storeJSON is the store for programs.
type storeJSON struct {
	Store     string    `json:"store"`
	Scheme    string    `json:"scheme"`
	MinTTLMS  int64     `json:"min_ttl_ms"`
	MaxTTLMS  int64     `json:"max_ttl_ms"`
	Can       abilities `json:"can"`
	Cautions  []string  `json:"cautions"`
	ReadMS    *int64    `json:"last_survey_ms,omitempty"` // how long the last reading of all names took
	Trouble   string    `json:"trouble,omitempty"`
	ReadAt    time.Time `json:"read_at"`
	NamesRead int       `json:"names_read"`
}

// storeBody is what the template of the store needs.
type storeBody struct {
	Store, Scheme  string
	MinTTL, MaxTTL string
	Abilities      []abilityBody
	Cautions       []string
}

type abilityBody struct {
	Title string
	Can   bool
}

func (storeView) before() []want { return nil }

func (storeView) make(k *knowledge, _ moment) page {
	c := make(cells)
	frame(c, k)
	a := k.store.abilities
	data := storeJSON{
		Store: k.store.label, Scheme: k.store.scheme, MinTTLMS: k.store.limits.MinTTL.Milliseconds(), MaxTTLMS: k.store.limits.MaxTTL.Milliseconds(),
		Can: a, Cautions: append([]string{}, k.store.cautions...), Trouble: k.trouble, ReadAt: k.readAt.UTC(),
	}
	took, n := "", 0
	if s := k.survey; s != nil {
		t := s.End.Elapsed(s.Began)
		ms := t.Milliseconds()
		data.ReadMS, n = &ms, len(s.Names)
		took = t.Round(time.Millisecond / 10).String()
	}
	data.NamesRead = n
	c.text("took", took, plain)
	c.number("names", n, k.survey != nil, plain)
	return page{kind: "store", title: "Store", data: data, cells: c, body: storeBody{
		Store: k.store.label, Scheme: k.store.scheme, MinTTL: k.store.limits.MinTTL.String(), MaxTTL: longest(k.store.limits.MaxTTL), Cautions: k.store.cautions,
		Abilities: []abilityBody{
			{"Show earlier holders", a.History}, {"Revoke a lease", a.Revoke}, {"Pin a name to its holder", a.Pin},
			{"Hand a name to the next waiter", a.Transfer}, {"Choose the next waiter", a.Prefer}, {"List waiting claims", a.Queue},
		},
	}}
}

// longest formats the longest TTL that a store accepts.
func longest(d time.Duration) string {
	if d > 100*365*24*time.Hour {
		return "no limit"
	}
	return d.String()
}
