package webconsole

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/namejson"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// rowsPerPage is how many names a page has.
const rowsPerPage = 50

// names is the view of one page of the names that a query selects.
type names struct {
	query survey.Query
	path  string     // of the page, relative
	fixed url.Values // what stays the same on the next page
	// rows are the names on the page, once it was made.
	rows []string
	made bool
	// selected is what the query selects from the survey of, so that updates do not go through all names again.
	selected survey.Page
	of       *survey.Survey
}

var listStates = []survey.State{survey.Any, survey.Held, survey.Contended, survey.Pinned, survey.Free, survey.Unread}

func newNames(q url.Values) (view, error) {
	v := &names{path: "names", fixed: make(url.Values)}
	from, err := number(q, "from")
	if err != nil {
		return nil, err
	}
	v.query = survey.Query{Text: q.Get("q"), State: survey.State(q.Get("state")), From: from, Most: rowsPerPage}
	if !slices.Contains(listStates, v.query.State) {
		return nil, badQuery(fmt.Sprintf("state=%q is unknown: write held, waiting, pinned, free or unreadable", v.query.State))
	}
	if v.query.Text != "" {
		v.fixed.Set("q", v.query.Text)
	}
	if v.query.State != "" {
		v.fixed.Set("state", string(v.query.State))
	}
	return v, nil
}

// namesJSON is a page of names for programs.
type namesJSON struct {
	Total int             `json:"total"`
	From  int             `json:"from"`
	Next  string          `json:"next,omitempty"`
	Names []namejson.Name `json:"names"`
}

// namesBody is what the template of a list of names needs.
type namesBody struct {
	Rows           []rowBody
	Text           string
	State          survey.State
	States         []stateBody
	Previous, Next string // paths; empty if there is none
	Self           string
}

// rowBody is one row of a list of names.
type rowBody struct{ Key, Name, Link string }

// stateBody is one choice of the filter.
type stateBody struct {
	Value    survey.State
	Title    string
	Selected bool
}

var stateTitles = map[survey.State]string{
	survey.Any: "All", survey.Held: "Held", survey.Contended: "With waiters", survey.Pinned: "Pinned", survey.Free: "Free", survey.Unread: "Unreadable",
}

func (v *names) before() []want { return nil }

func (v *names) make(k *knowledge, now moment) page {
	c := make(cells)
	frame(c, k)
	p := page{kind: "names", title: "Names", cells: c}
	body, data := v.list(c, k, now, &p)
	p.body, p.data = body, data
	return p
}

// list adds the cells of the rows and of the line below them.
func (v *names) list(c cells, k *knowledge, now moment, p *page) (namesBody, namesJSON) {
	if k.survey != v.of {
		v.selected, v.of = k.survey.Select(v.query), k.survey
	}
	selected, added := v.selected, 0
	if !v.made {
		for _, n := range selected.Names {
			v.rows = append(v.rows, n.Name)
		}
		v.made = k.survey != nil
	} else {
		for _, n := range selected.Names {
			if _, on := slices.BinarySearch(v.rows, n.Name); !on {
				added++
			}
		}
	}
	body, data := namesBody{Text: v.query.Text, State: v.query.State, Self: v.at(v.query.From)}, namesJSON{Total: selected.Total, From: selected.From, Names: []namejson.Name{}}
	for _, name := range v.rows {
		n, _ := k.find(name)
		body.Rows = append(body.Rows, rowBody{keyOf(name), backend.Printable(name), nameLink(name)})
		data.Names = append(data.Names, jsonOf(n, now))
		p.wants = append(p.wants, want{name: name})
		addRow(c, &n, now)
	}
	for _, s := range listStates {
		body.States = append(body.States, stateBody{s, stateTitles[s], s == v.query.State})
	}
	body.Previous, body.Next = neighbours(selected.From, len(selected.Names), selected.Total, v.at)
	data.Next = body.Next
	c.text("total", rangeInWords(selected), quiet)
	c["added"] = cell{}
	if added > 0 {
		c["added"] = cell{Text: addedInWords(added), Link: body.Self, Tone: live}
	}
	return body, data
}

// neighbours returns the links to the pages before and after rows of a list, "" where there is none. at makes the link to the
// page that begins after a number of rows.
func neighbours(from, shown, total int, at func(int) string) (previous, next string) {
	if from > 0 {
		previous = at(max(0, from-rowsPerPage))
	}
	if after := from + shown; after < total {
		next = at(after)
	}
	return previous, next
}

// at returns the link to the page that begins after a number of names.
func (v *names) at(from int) string {
	q := url.Values{}
	for key, values := range v.fixed {
		q[key] = values
	}
	if from > 0 {
		q.Set("from", strconv.Itoa(from))
	}
	if len(q) == 0 {
		return v.path
	}
	return v.path + "?" + q.Encode()
}

func rangeInWords(p survey.Page) string {
	switch {
	case p.Total == 0:
		return "No names"
	case p.Total == 1:
		return "1 name"
	case len(p.Names) == p.Total:
		return grouped(p.Total) + " names"
	}
	return fmt.Sprintf("%s–%s of %s names", grouped(p.From+1), grouped(p.From+len(p.Names)), grouped(p.Total))
}

func addedInWords(n int) string {
	if n == 1 {
		return "1 more name: show it"
	}
	return grouped(n) + " more names: show them"
}

// jsonOf returns a name for programs, with the time that is left now.
func jsonOf(n survey.Name, now moment) namejson.Name {
	n.Remaining = n.Left(now.clock)
	return namejson.OfName(n.Info)
}

// addRow adds the cells of one row of a list of names.
func addRow(c cells, n *survey.Name, now moment) {
	key := keyOf(n.Name) + "."
	switch {
	case n.Err != nil:
		c.text(key+"holder", "cannot be read: "+backend.Printable(n.Err.Error()), bad)
	case n.Held:
		c[key+"holder"] = holderCell(n.Holder.ID)
	default:
		c.text(key+"holder", "free", quiet)
	}
	c.text(key+"token", tokenText(n), toneIf(!n.Held, quiet))
	c.lease(key+"left", n, now.clock)
	c.number(key+"waiting", n.Waiting, n.Held && n.Waiting >= 0, toneIf(n.Waiting == 0, quiet))
}

func tokenText(n *survey.Name) string {
	if n.Token == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n.Token), 10)
}
