package webconsole

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/memberjson"
)

// audit is the view of one page of the audit log, the newest records first.
type audit struct {
	text string // selects records that contain it
	from int
}

func newAudit(q url.Values) (view, error) {
	from, err := number(q, "from")
	if err != nil {
		return nil, err
	}
	return &audit{text: q.Get("q"), from: from}, nil
}

// auditJSON is a page of the audit log for programs.
type auditJSON struct {
	Recording bool                     `json:"recording"` // the log has begun
	Total     int                      `json:"total"`
	From      int                      `json:"from"`
	Next      string                   `json:"next,omitempty"`
	Records   []memberjson.AuditRecord `json:"records"`
	Error     string                   `json:"error,omitempty"` // why the log cannot be read
}

// auditBody is what the template of the audit log needs.
type auditBody struct {
	Server         bool
	Rows           []string // the prefixes of the cells' keys
	Text           string
	Previous, Next string
}

func (v *audit) before() []want { return []want{{topic: auditTopic}} }

func (v *audit) make(k *knowledge, _ moment) page {
	c := make(cells)
	frame(c, k)
	f := k.audit
	if f == nil {
		f = new(auditFacts)
	}
	selected := v.selected(f)
	from := v.from
	if from >= len(selected) {
		from = max(0, (len(selected)-1)/rowsPerPage*rowsPerPage)
	}
	shown := selected[from:min(len(selected), from+rowsPerPage)]
	body := auditBody{Server: k.store.server, Text: v.text}
	data := auditJSON{Recording: f.recording, Total: len(selected), From: from, Records: append([]memberjson.AuditRecord{}, shown...)}
	body.Previous, body.Next = neighbours(from, len(shown), len(selected), v.at)
	data.Next = body.Next
	for i := range rowsPerPage {
		key := fmt.Sprintf("audit.%d.", i)
		body.Rows = append(body.Rows, key)
		addRecord(c, key, i, shown)
	}
	c.text("total", recordsInWords(len(selected)), quiet)
	c["state"] = cell{}
	switch {
	case !k.store.server:
		data.Error = noServer(k).Error()
	case errors.Is(f.err, backend.ErrDenied), errors.Is(f.err, backend.ErrUnauthenticated):
		data.Error = "the audit log needs a user with the role root"
		c.text("state", "The audit log cannot be read: it needs a user with the role root.", warn)
	case f.err != nil:
		data.Error = f.err.Error()
		c.text("state", "The audit log cannot be read: "+backend.Printable(f.err.Error()), bad)
	case k.audit != nil && !f.recording:
		c.text("state", "The audit log has not begun: it begins with the first user or role, or with --audit on every member.", quiet)
	}
	return page{kind: "audit", title: "Audit", data: data, cells: c, body: body, wants: v.before()}
}

// selected returns the records that contain the text.
func (v *audit) selected(f *auditFacts) []memberjson.AuditRecord {
	if v.text == "" {
		return f.records
	}
	var found []memberjson.AuditRecord
	for _, r := range f.records {
		for _, field := range []string{r.User, r.Certificate, r.Address, r.Act, r.Object, r.Reason} {
			if strings.Contains(field, v.text) {
				found = append(found, r)
				break
			}
		}
	}
	return found
}

// addRecord adds the cells of one row.
func addRecord(c cells, key string, i int, shown []memberjson.AuditRecord) {
	if i >= len(shown) {
		for _, column := range []string{"number", "time", "who", "from", "act", "object", "reason"} {
			c[key+column] = cell{}
		}
		return
	}
	r := shown[i]
	who := r.User
	if who == "" && r.Certificate != "" {
		who = "certificate " + r.Certificate
	}
	at := ""
	if t, err := time.Parse(time.RFC3339Nano, r.Time); err == nil {
		at = dayAndTime(t)
	}
	c.text(key+"number", strconv.FormatUint(r.Sequence, 10), quiet)
	c.text(key+"time", at, plain)
	c.text(key+"who", backend.Printable(who), plain)
	c.text(key+"from", backend.Printable(r.Address), plain)
	c.text(key+"act", backend.Printable(r.Act), plain)
	c.text(key+"reason", backend.Printable(r.Reason), plain)
	c.text(key+"object", backend.Printable(r.Object), plain)
	if strings.HasPrefix(r.Act, "name.") && backend.CheckName(r.Object) == nil {
		c[key+"object"] = cell{Text: backend.Printable(r.Object), Link: nameLink(r.Object)}
	}
}

// at returns the link to the page that begins after a number of records.
func (v *audit) at(from int) string {
	q := url.Values{}
	if v.text != "" {
		q.Set("q", v.text)
	}
	if from > 0 {
		q.Set("from", strconv.Itoa(from))
	}
	if len(q) == 0 {
		return "audit"
	}
	return "audit?" + q.Encode()
}

func recordsInWords(n int) string {
	switch n {
	case 0:
		return "No records"
	case 1:
		return "1 record"
	}
	return grouped(n) + " records"
}
