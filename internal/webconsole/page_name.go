package webconsole

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/namejson"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// historyRows is how many tenures the page of a name shows. The rows are always there, so that nothing moves.
const historyRows = 10

// oneName is the view of one name.
type oneName struct{ name string }

func newName(q url.Values) (view, error) {
	name := q.Get("name")
	if err := backend.CheckName(name); err != nil {
		return nil, badQuery(err.Error())
	}
	return &oneName{name}, nil
}

// oneNameJSON is a name for programs.
type oneNameJSON struct {
	namejson.Name
	// History is missing if the store keeps none.
	History []namejson.Tenure `json:"history,omitempty"`
	// Queue are the first waiting claims, the next holder first. They are missing if the store does not list them.
	Queue []waiterJSON `json:"queue,omitempty"`
	// AttachedKeys are missing if the store is no server, or the user lacks the role root.
	AttachedKeys []string `json:"attached_keys,omitempty"`
	Error        string   `json:"error,omitempty"` // why the name or its history cannot be read
}

// oneNameBody is what the template of a name needs.
type oneNameBody struct {
	Name, Shown string
	Rows        []int
	Queue       []int    // rows for waiting claims
	Waiters     []string // the holders of waiting claims when the page was made
	NoHistory   string   // why there is no history; "" if there is
	Command     string
	Snippet     string
	Token       uint64 // of the holder when the page was made; 0 if there was none
	Pinned      bool
	Abilities   abilities
	Forms       bool // a change is possible now
	Keys        bool // the page shows the keys that are attached to the lease
}

func (v *oneName) before() []want { return []want{{name: v.name, detail: true}} }

func (v *oneName) make(k *knowledge, now moment) page {
	c := make(cells)
	frame(c, k)
	n, _ := k.find(v.name)
	d := k.details[v.name]
	shown := backend.Printable(v.name)
	v.addState(c, &n, now)
	c.text("holder", "", plain)
	for _, key := range []string{"host", "pid", "started", "card", "ttl"} {
		c.text(key, "", plain)
	}
	if n.Held {
		card := n.Holder.Card
		c["holder"] = holderCell(n.Holder.ID)
		if card.Host != "" {
			c["host"] = cell{Text: backend.Printable(card.Host), Link: link("host", "host", card.Host)}
		}
		if card.PID != 0 {
			c.text("pid", strconv.Itoa(card.PID), plain)
		}
		c.text("started", dayAndTime(card.Started), plain)
		c.text("card", printableLines(card.Text), plain)
		c.text("ttl", n.TTL.String(), plain)
	}
	c.text("token", tokenText(&n), toneIf(!n.Held, quiet))
	c.number("waiting", n.Waiting, n.Held && n.Waiting >= 0, plain)
	data := oneNameJSON{Name: jsonOf(n, now)}
	body := oneNameBody{
		Name: v.name, Shown: shown, Rows: count(historyRows), Queue: count(queueRows), Pinned: n.Pinned != "", Abilities: k.store.abilities, Forms: n.Held,
		Command: fmt.Sprintf("leasekeeper run --store %s %s -- COMMAND", shellQuoted(k.store.url), shellQuoted(v.name)),
		Snippet: snippet(k.store.url, v.name),
	}
	if n.Held {
		body.Token = uint64(n.Token)
	}
	if d.attached != nil {
		body.Keys, data.AttachedKeys = true, d.attached.keys
		c.text("keys", d.attached.inWords(), plain)
	}
	addQueue(c, d, n.Waiting, &body, &data)
	v.addHistory(c, d, now, &body, &data)
	return page{kind: "name", title: shown, data: data, cells: c, body: body, wants: v.before()}
}

// addState adds the cells about what the name is now.
func (v *oneName) addState(c cells, n *survey.Name, now moment) {
	switch {
	case n.Err != nil:
		c.text("state", "Unreadable", bad)
	case !n.Held:
		c.text("state", "Free", quiet)
	case n.Pinned != "":
		c.text("state", "Pinned", warn)
	default:
		c.text("state", "Held", live)
	}
	c["pinned"] = cell{}
	if n.Pinned != "" {
		c.text("pinned", "Pinned: "+backend.Printable(n.Pinned), warn)
	}
	c.lease("left", n, now.clock)
}

// addHistory adds the table of tenures and their picture.
func (v *oneName) addHistory(c cells, d detail, now moment, body *oneNameBody, data *oneNameJSON) {
	if d.err != nil {
		body.NoHistory = "The history cannot be read: " + backend.Printable(d.err.Error())
		if errors.Is(d.err, backend.ErrUnsupported) {
			body.NoHistory = "This store keeps no history."
		}
		data.Error = d.err.Error()
	}
	for i := range historyRows {
		key := fmt.Sprintf("history.%d.", i)
		if i >= len(d.history) {
			for _, column := range []string{"token", "holder", "from", "to", "why"} {
				c[key+column] = cell{}
			}
			continue
		}
		t := d.history[i]
		c.text(key+"token", strconv.FormatUint(uint64(t.Token), 10), plain)
		c[key+"holder"] = holderCell(t.Holder.ID)
		c.text(key+"from", dayAndTime(t.From), plain)
		c.text(key+"to", dayAndTime(t.To), plain)
		c.text(key+"why", whyInWords(t), toneOf(t))
	}
	for _, t := range d.history {
		data.History = append(data.History, namejson.OfTenure(t))
	}
	timeline(c, d.history, now.day)
}

// printableLines is [backend.Printable] for a text of several lines.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = backend.Printable(line)
	}
	return strings.Join(lines, "\n")
}

func whyInWords(t backend.Tenure) string {
	if t.To.IsZero() {
		return "holds it"
	}
	why := string(t.Why)
	if t.Note != "" {
		why += ": " + backend.Printable(t.Note)
	}
	return why
}

func toneOf(t backend.Tenure) tone {
	switch {
	case t.To.IsZero():
		return live
	case t.Why == backend.Expired, t.Why == backend.Revoked, t.Why == backend.Deleted:
		return warn
	}
	return plain
}

// The size of the picture of tenures, in its own units.
const (
	timelineWidth, timelineHeight = 1000, 24
	// leastTenure is the width of a tenure that is too short to be seen.
	leastTenure = 2
)

// timeline adds the picture of tenures from the earliest one until now: one path for each tone.
func timeline(c cells, tenures []backend.Tenure, now time.Time) {
	begin := now
	for _, t := range tenures {
		if !t.From.IsZero() && t.From.Before(begin) {
			begin = t.From
		}
	}
	whole := now.Sub(begin)
	paths := map[tone]*strings.Builder{plain: {}, live: {}, warn: {}}
	for _, t := range tenures {
		if t.From.IsZero() || whole <= 0 {
			continue
		}
		end := t.To
		if end.IsZero() || end.After(now) {
			end = now
		}
		at := func(x time.Time) float64 { return float64(x.Sub(begin)) / float64(whole) * timelineWidth }
		left := min(max(0, at(t.From)), timelineWidth-leastTenure)
		wide := min(max(leastTenure, at(end)-left), timelineWidth-left)
		w := coordinate(wide)
		fmt.Fprintf(paths[toneOf(t)], "M%s 0h%sv%dh-%sz", coordinate(left), w, timelineHeight, w)
	}
	for t, key := range map[tone]string{plain: "timeline.past", live: "timeline.live", warn: "timeline.warn"} {
		d := paths[t].String()
		if d == "" {
			d = "M0 0"
		}
		c[key] = cell{Line: d}
	}
	from := ""
	if whole > 0 {
		from = dayAndTime(begin)
	}
	c.text("timeline.from", from, quiet)
}

// shellQuoted returns a text as one word of a shell.
func shellQuoted(text string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/:._-@=+,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !safe(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// snippet returns Go code that runs a function while it holds a name.
func snippet(store, name string) string {
	return fmt.Sprintf(`keeper, err := leasekeeper.Open(ctx, %q)
if err != nil {
	return err
}
defer keeper.Close()
return keeper.Run(ctx, %q, func(ctx context.Context, l *leasekeeper.Lease) error {
	return work(ctx, l.Token()) // ctx ends if the lease is lost
})`, store, name)
}
