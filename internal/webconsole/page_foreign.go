package webconsole

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// foreignView is the view of the locks of other programs.
type foreignView struct {
	// rows are the locks on the page, once it was made.
	rows []backend.ForeignLock
	made bool
}

func newForeign(url.Values) (view, error) { return new(foreignView), nil }

// foreignJSON are the locks of other programs, for programs.
type foreignJSON struct {
	Kinds []string          `json:"kinds"` // that the store recognizes
	Locks []foreignLockJSON `json:"locks"`
	More  bool              `json:"more"`
	Error string            `json:"error,omitempty"`
}

// foreignLockJSON is one lock. What the store does not tell is missing.
type foreignLockJSON struct {
	Kind        string     `json:"kind"`
	Name        string     `json:"name"`
	Holder      string     `json:"holder"`
	Text        string     `json:"text,omitempty"`
	Token       uint64     `json:"token,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
	TTLMS       *int64     `json:"ttl_ms,omitempty"`
	RemainingMS *int64     `json:"remaining_ms,omitempty"`
	Waiting     *int       `json:"waiting,omitempty"`
}

// foreignBody is what the template needs.
type foreignBody struct {
	Kinds []string
	Rows  []foreignRow
}

// foreignRow is one row of the table.
type foreignRow struct{ Key, Kind, Name string }

func (*foreignView) before() []want { return []want{wantForeign} }

func (v *foreignView) make(k *knowledge, now moment) page {
	c := make(cells)
	frame(c, k)
	f := k.foreign
	if f == nil {
		f = new(foreignLocks)
	}
	data := foreignJSON{Kinds: append([]string{}, k.store.foreign...), Locks: []foreignLockJSON{}, More: f.more}
	c["foreign.trouble"] = cell{}
	if f.err != nil && !errors.Is(f.err, backend.ErrUnsupported) {
		data.Error = f.err.Error()
		c.text("foreign.trouble", "These locks cannot be read: "+backend.Printable(f.err.Error()), warn)
	}
	held := make(map[string]*backend.ForeignLock, len(f.locks))
	for i := range f.locks {
		l := &f.locks[i]
		held[foreignKey(l)] = l
		data.Locks = append(data.Locks, jsonOfForeign(f, l, now))
	}
	if !v.made && k.foreign != nil {
		v.rows, v.made = f.locks, true
	}
	added := len(held)
	body := foreignBody{Kinds: k.store.foreign}
	for i := range v.rows {
		key := foreignKey(&v.rows[i])
		l := held[key]
		if l != nil {
			added--
		}
		addForeign(c, key+".", f, l, now)
		body.Rows = append(body.Rows, foreignRow{key, v.rows[i].Kind, backend.Printable(v.rows[i].Name)})
	}
	c.text("total", foreignInWords(len(held), f.more), quiet)
	c["added"] = cell{}
	if added > 0 {
		c["added"] = cell{Text: grouped(added) + " more: show them", Link: "foreign", Tone: live}
	}
	return page{kind: "foreign", title: "Foreign locks", data: data, cells: c, body: body, wants: v.before()}
}

// foreignKey is the key of the cells of a lock. A table or a session besides the name tells locks of one name apart.
func foreignKey(l *backend.ForeignLock) string {
	place := ""
	if l.Token == 0 && l.Waiting < 0 {
		place = l.Text
	}
	return keyOf(l.Kind + "\x00" + l.Name + "\x00" + place)
}

// addForeign adds the cells of one row. l is nil if the lock is no longer held.
func addForeign(c cells, key string, f *foreignLocks, l *backend.ForeignLock, now moment) {
	for _, column := range []string{"text", "since", "waiting", "left"} {
		c.text(key+column, "", plain)
	}
	if l == nil {
		c.text(key+"holder", "free", quiet)
		return
	}
	c.text(key+"holder", backend.Printable(l.Holder), plain)
	c.text(key+"text", backend.Printable(strings.Join(strings.Fields(l.Text), " ")), quiet)
	c.text(key+"since", dayAndTime(l.Since), plain)
	c.number(key+"waiting", l.Waiting, l.Waiting >= 0, toneIf(l.Waiting == 0, quiet))
	left := f.left(l, now.clock)
	switch {
	case left < 0:
		c.text(key+"left", "as long as its session", quiet)
	case left == 0:
		c[key+"left"] = cell{Text: "ending", Tone: warn, Bar: &bar{0, l.TTL.Milliseconds()}}
	default:
		c[key+"left"] = cell{Text: leftInWords(left), Bar: &bar{left.Milliseconds(), max(left, l.TTL).Milliseconds()}}
	}
}

func jsonOfForeign(f *foreignLocks, l *backend.ForeignLock, now moment) foreignLockJSON {
	j := foreignLockJSON{Kind: l.Kind, Name: l.Name, Holder: l.Holder, Text: l.Text, Token: uint64(l.Token)}
	if !l.Since.IsZero() {
		j.Since = &l.Since
	}
	if l.TTL > 0 {
		ms := l.TTL.Milliseconds()
		j.TTLMS = &ms
	}
	if left := f.left(l, now.clock); left >= 0 {
		ms := left.Milliseconds()
		j.RemainingMS = &ms
	}
	if l.Waiting >= 0 {
		j.Waiting = &l.Waiting
	}
	return j
}

func foreignInWords(n int, more bool) string {
	switch {
	case more:
		return "The first " + strconv.Itoa(n) + " locks; the store has more"
	case n == 0:
		return "No locks"
	case n == 1:
		return "1 lock"
	}
	return grouped(n) + " locks"
}
