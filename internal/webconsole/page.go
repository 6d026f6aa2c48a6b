package webconsole

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// moment is the time at which a page is made.
type moment struct {
	clock clock.Instant
	day   time.Time
}

// page is what a browser or a program gets.
type page struct {
	// kind is the name of its template.
	kind  string
	title string
	// data is the content as JSON.
	data any
	// cells are what may change while the page is open.
	cells cells
	// body is what the template shows besides the cells.
	body any
	// wants are the names that the page shows.
	wants []want
}

// view makes one page again and again, as its content changes. It belongs to one goroutine. What was chosen at the first
// time, such as the names on the page, stays, so that an open page does not jump.
type view interface {
	// before returns what must be read before the page can be made.
	before() []want
	make(k *knowledge, now moment) page
}

// badQuery is the error of a query that makes no sense. Its text is for people.
type badQuery string

func (b badQuery) Error() string { return string(b) }

// pages are the pages of the console by their paths. A page that a template shows as a link has its path here.
var pages = map[string]func(url.Values) (view, error){
	"/":        newOverview,
	"/names":   newNames,
	"/name":    newName,
	"/holder":  newHolder,
	"/host":    newHost,
	"/foreign": newForeign,
	"/store":   newStore,
	"/cluster": newCluster,
	"/audit":   newAudit,
}

// build returns the view of a path and a query. It returns false if there is no such page.
func build(path string, query url.Values) (view, bool, error) {
	make, ok := pages[path]
	if !ok {
		return nil, false, nil
	}
	v, err := make(query)
	return v, true, err
}

// keyOf returns a key of cells for a text that another program chose.
func keyOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// frame adds the cells that all pages have.
func frame(c cells, k *knowledge) {
	switch {
	case k.trouble != "" && k.readAt.IsZero():
		c.text("trouble", "The store does not answer: "+k.trouble, bad)
	case k.trouble != "":
		c.text("trouble", fmt.Sprintf("The store does not answer, so the figures are those of %s UTC: %s", clockTime(k.readAt), k.trouble), bad)
	case k.survey != nil && k.survey.Truncated:
		c.text("trouble", fmt.Sprintf("The store has more than %s names. The console shows the first ones only.", grouped(k.store.most)), warn)
	default:
		c["trouble"] = cell{}
	}
	c.text("read", clockTime(k.readAt), quiet)
}

// number reads a number from a query; missing means 0.
func number(query url.Values, key string) (int, error) {
	text := query.Get(key)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badQuery(fmt.Sprintf("%s=%q is not a number: write one from 0 on", key, text))
	}
	return n, nil
}

// link returns the link to a page about one text, such as a name. All pages are in one folder and links are relative, so
// the console works below any path.
func link(path, key, text string) string {
	if text == "" {
		return ""
	}
	return path + "?" + url.Values{key: {text}}.Encode()
}

func nameLink(name string) string { return link("name", "name", name) }
