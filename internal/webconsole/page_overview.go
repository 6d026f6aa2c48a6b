package webconsole

import (
	"fmt"
	"net/url"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// How many rows the overview has. They are always there, so that nothing moves when they fill.
const (
	overviewQueues = 5
	overviewRecent = 10
)

// overview is the view of the store as a whole.
type overview struct{}

func newOverview(url.Values) (view, error) { return overview{}, nil }

// overviewJSON is the overview for programs. A figure that the store does not tell is missing.
type overviewJSON struct {
	Store      string            `json:"store"`
	Scheme     string            `json:"scheme"`
	ReadAt     time.Time         `json:"read_at"`
	Trouble    string            `json:"trouble,omitempty"`
	Held       int               `json:"held"`
	Free       int               `json:"free"`
	Waiting    *int              `json:"waiting,omitempty"`
	Contended  *int              `json:"contended,omitempty"`
	Pinned     int               `json:"pinned"`
	Unreadable int               `json:"unreadable"`
	Plots      map[string]series `json:"plots"`
	Recent     []happeningJSON   `json:"recent"`
	Queues     []queueJSON       `json:"longest_queues"`
	Cluster    *clusterJSON      `json:"cluster,omitempty"` // missing if the store is no server
}

type queueJSON struct {
	Name    string `json:"name"`
	Waiting int    `json:"waiting"`
}

// series is a plot for programs: one figure per slot, the oldest first, and null where nobody observed it.
type series struct {
	SlotSeconds float64    `json:"slot_seconds"`
	Values      []*float64 `json:"values"`
}

func seriesOf(values []float64) series {
	s := series{SlotSeconds: plotSlot.Seconds(), Values: make([]*float64, len(values))}
	for i := range values {
		if !survey.IsMissing(values[i]) {
			s.Values[i] = &values[i]
		}
	}
	return s
}

// happeningJSON is a change of a name for programs.
type happeningJSON struct {
	Name   string    `json:"name"`
	At     time.Time `json:"at"`
	Ended  string    `json:"ended,omitempty"` // the holder whose tenure ended
	Why    string    `json:"why,omitempty"`
	Began  string    `json:"began,omitempty"` // the holder whose tenure began
	Token  uint64    `json:"token"`
	Legend string    `json:"text"`
}

func jsonOfHappening(h happening) happeningJSON {
	return happeningJSON{Name: h.name, At: h.at.UTC(), Ended: h.was.ID, Why: string(h.why), Began: h.holder.ID, Token: uint64(h.token), Legend: h.text()}
}

// text says in a few words what happened.
func (h happening) text() string {
	ended := map[backend.Reason]string{
		backend.Released: "released by", backend.Expired: "expired, held by", backend.Revoked: "revoked from",
		backend.Transferred: "transferred from", backend.Deleted: "deleted, held by", "": "no longer held by",
	}[h.why]
	if ended == "" {
		ended = string(h.why) + ", held by"
	}
	switch {
	case h.ended && h.began:
		return fmt.Sprintf("acquired by %s; %s %s", backend.Printable(h.holder.ID), ended, backend.Printable(h.was.ID))
	case h.ended:
		return ended + " " + backend.Printable(h.was.ID)
	}
	return "acquired by " + backend.Printable(h.holder.ID)
}

func (h happening) tone() tone {
	switch {
	case h.why == backend.Expired, h.why == backend.Revoked, h.why == backend.Deleted:
		return warn
	case h.began:
		return plain
	}
	return quiet
}

// overviewBody is what the template of the overview needs.
type overviewBody struct {
	Queues, Recent []int
	Plots          []plotHead
	// Renewals says which renewals the plot of them counts.
	Renewals string
}

// plotHead is the head of a plot.
type plotHead struct{ Key, Title, Unit string }

var overviewPlots = []plotHead{
	{"held", "Names held", ""}, {"waiting", "Claims waiting", ""}, {"began", "Acquired", "/s"}, {"renewed", "Renewed", "/s"}, {"expired", "Expired", "/s"},
}

// renewalsInWords says which renewals the plot of them counts.
func renewalsInWords(k *knowledge) string {
	if !k.store.server {
		return "This store does not count renewals."
	}
	return "The leader counts renewals of all leases. The console reads them while this page or the page of the cluster is open."
}

func (overview) before() []want { return []want{{topic: clusterTopic}} }

func (overview) make(k *knowledge, now moment) page {
	c := make(cells)
	frame(c, k)
	counts, seen := survey.Counts{}, k.survey != nil
	if seen {
		counts = k.survey.Counts
	}
	c.number("held", counts.Held, seen, live)
	c.number("waiting", counts.Waiting, seen && counts.WaitingKnown, plain)
	c.number("contended", counts.Contended, seen && counts.WaitingKnown, plain)
	c.number("free", counts.Free, seen, quiet)
	c.number("pinned", counts.Pinned, seen, toneIf(counts.Pinned > 0, warn))
	c.number("unreadable", counts.Unreadable, seen, toneIf(counts.Unreadable > 0, bad))
	c.plot("plot.held", k.plots.held, whole)
	c.plot("plot.waiting", k.plots.waiting, whole)
	c.plot("plot.began", k.plots.began, rate)
	c.plot("plot.expired", k.plots.expired, rate)
	c.plot("plot.renewed", k.plots.renewed, rate)
	data := overviewJSON{
		Store: k.store.label, Scheme: k.store.scheme, ReadAt: k.readAt.UTC(), Trouble: k.trouble,
		Held: counts.Held, Free: counts.Free, Pinned: counts.Pinned, Unreadable: counts.Unreadable,
		Plots: map[string]series{
			"held": seriesOf(k.plots.held), "waiting": seriesOf(k.plots.waiting),
			"acquired_per_second": seriesOf(k.plots.began), "expired_per_second": seriesOf(k.plots.expired),
			"renewed_per_second": seriesOf(k.plots.renewed),
		},
		Recent: []happeningJSON{}, Queues: []queueJSON{},
	}
	if counts.WaitingKnown && seen {
		data.Waiting, data.Contended = &counts.Waiting, &counts.Contended
	}
	if k.store.server {
		addCluster(c, k, now)
		data.Cluster = clusterJSONOf(k)
	}
	addRecent(c, k, &data)
	addQueues(c, k, &data)
	return page{kind: "overview", title: "Overview", data: data, cells: c, body: overviewBody{count(overviewQueues), count(overviewRecent), overviewPlots, renewalsInWords(k)}, wants: overview{}.before()}
}

func addRecent(c cells, k *knowledge, data *overviewJSON) {
	for i := range overviewRecent {
		key := fmt.Sprintf("recent.%d.", i)
		if i >= len(k.recent) {
			c[key+"at"], c[key+"name"], c[key+"text"] = cell{}, cell{}, cell{}
			continue
		}
		h := k.recent[i]
		c.text(key+"at", clockTime(h.at), quiet)
		c[key+"name"] = cell{Text: backend.Printable(h.name), Link: nameLink(h.name)}
		c.text(key+"text", h.text(), h.tone())
	}
	for _, h := range k.recent {
		data.Recent = append(data.Recent, jsonOfHappening(h))
	}
}

func addQueues(c cells, k *knowledge, data *overviewJSON) {
	for i := range overviewQueues {
		key := fmt.Sprintf("queue.%d.", i)
		if i >= len(k.longest) {
			c[key+"name"], c[key+"waiting"] = cell{}, cell{}
			continue
		}
		n := k.longest[i]
		c[key+"name"] = cell{Text: backend.Printable(n.Name), Link: nameLink(n.Name)}
		c.number(key+"waiting", n.Waiting, true, plain)
		data.Queues = append(data.Queues, queueJSON{n.Name, n.Waiting})
	}
}

func toneIf(is bool, t tone) tone {
	if is {
		return t
	}
	return plain
}

// count returns the numbers from 0 to n-1, for templates.
func count(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
