package webconsole

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// cell is one place of a page that may change while the page is open. Its JSON is what an open page receives.
type cell struct {
	// Text is the text of the place.
	Text string `json:"t"`
	// Tone is the meaning of the text, which the style sheet shows as a colour.
	Tone tone `json:"c,omitempty"`
	// Bar is the remaining time of a lease. The text of the place is then that time in words.
	Bar *bar `json:"b,omitempty"`
	// Link is the page that the text leads to, if the place is a link.
	Link string `json:"h,omitempty"`
	// Line is the path of a plot, in the coordinates of its picture.
	Line string `json:"d,omitempty"`
}

// bar is the remaining time of a lease, in milliseconds.
type bar struct {
	Left  int64 `json:"left"`
	Whole int64 `json:"whole"` // the TTL
}

// tone is what a text means.
type tone string

const (
	plain tone = ""
	quiet tone = "quiet" // nothing, unknown, or of the past
	live  tone = "live"  // held, and as it should be
	warn  tone = "warn"  // look at it
	bad   tone = "bad"   // act
)

// cells are the cells of a page, by a key that is unique on the page.
type cells map[string]cell

const dash = "–"

// holderCell is a holder, with a link to its page.
func holderCell(id string) cell {
	return cell{Text: backend.Printable(id), Link: link("holder", "id", id)}
}

// text adds a cell with a text. An empty one is a dash.
func (c cells) text(key, text string, t tone) {
	if text == "" {
		text, t = dash, quiet
	}
	c[key] = cell{Text: text, Tone: t}
}

// number adds a cell with a number. An unknown one is a dash.
func (c cells) number(key string, n int, known bool, t tone) {
	if !known {
		c.text(key, "", plain)
		return
	}
	c.text(key, grouped(n), t)
}

// lease adds the cell of the remaining time of a name.
func (c cells) lease(key string, n *survey.Name, now clock.Instant) {
	left := n.Left(now)
	switch {
	case !n.Held:
		c.text(key, "", plain)
	case n.Pinned != "":
		c.text(key, "pinned", warn)
	case left < 0:
		c.text(key, "", plain)
	case left == 0:
		c[key] = cell{Text: "ending", Tone: warn, Bar: &bar{0, n.TTL.Milliseconds()}}
	default:
		c[key] = cell{Text: leftInWords(left), Bar: &bar{left.Milliseconds(), n.TTL.Milliseconds()}}
	}
}

// leftInWords formats a remaining time. The script of the page does the same between two updates.
func leftInWords(d time.Duration) string {
	s := int64(math.Ceil(d.Seconds()))
	switch {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 120*60:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h", s/3600)
	}
	return fmt.Sprintf("%d d", s/86400)
}

// grouped formats a number with a thin space between groups of three digits.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	if len(digits) <= 4 {
		return sign + digits
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// rate formats a number per second.
func rate(v float64) string {
	switch {
	case survey.IsMissing(v):
		return ""
	case v >= 100:
		return grouped(int(math.Round(v)))
	case v >= 10 || v == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// The size of the picture of a plot, in its own units.
const (
	plotWidth, plotHeight = 360, 48
)

// whole formats a number of things.
func whole(v float64) string {
	if survey.IsMissing(v) {
		return ""
	}
	return grouped(int(math.Round(v)))
}

// plot adds the cells of a plot: its line, its newest figure and its highest.
func (c cells) plot(key string, values []float64, inWords func(float64) string) {
	values, from := lately(values)
	c.text(key+".from", from, quiet)
	most, latest := 0.0, survey.Missing
	for _, v := range values {
		if !survey.IsMissing(v) {
			most = max(most, v)
		}
	}
	if len(values) > 0 {
		latest = values[len(values)-1]
	}
	c[key+".line"] = cell{Line: line(values, most)}
	c.text(key+".now", inWords(latest), plain)
	highest := inWords(most)
	if !anyKnown(values) {
		highest = ""
	}
	c.text(key+".most", highest, quiet)
}

// spans are the lengths of time that plots show, the shortest first.
var spans = []struct {
	slots int
	from  string
}{{5 * 6, "5 min ago"}, {15 * 6, "15 min ago"}, {plotSlots - 1, "60 min ago"}}

// lately returns the end of values, as long as the shortest span with all known figures, and when it begins.
func lately(values []float64) ([]float64, string) {
	known := len(values)
	for known > 0 && survey.IsMissing(values[len(values)-known]) {
		known--
	}
	for _, s := range spans {
		if known <= s.slots {
			return values[max(0, len(values)-s.slots):], s.from
		}
	}
	return values, spans[len(spans)-1].from
}

func anyKnown(values []float64) bool {
	for _, v := range values {
		if !survey.IsMissing(v) {
			return true
		}
	}
	return false
}

// line returns the path of a plot, with gaps where figures are missing. A line of one figure has a length, or it would
// not show.
func line(values []float64, most float64) string {
	if len(values) == 0 {
		return "M0 0"
	}
	var b strings.Builder
	step := float64(plotWidth) / float64(len(values))
	drawn := false
	for i, v := range values {
		if survey.IsMissing(v) {
			drawn = false
			continue
		}
		y := float64(plotHeight - 1)
		if most > 0 {
			y -= v / most * (plotHeight - 2)
		}
		if drawn {
			fmt.Fprintf(&b, "L%s %s", coordinate(float64(i+1)*step), coordinate(y))
		} else {
			fmt.Fprintf(&b, "M%s %sh%s", coordinate(float64(i)*step), coordinate(y), coordinate(step))
		}
		drawn = true
	}
	if b.Len() == 0 {
		return "M0 0"
	}
	return b.String()
}

func coordinate(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// clockTime formats a time of day for people.
func clockTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04:05")
}

// dayAndTime formats a date and time of day for people.
func dayAndTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
