package webconsole

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

const (
	// updateLimit is how long a browser may take to read an update.
	updateLimit = 5 * time.Second
	// keepAlive is how often an update is sent at least, so that the end of a connection is noticed.
	keepAlive = 15 * time.Second
	// sameEnd is by how much the end of a lease may move without an update. It is more than the error of milliseconds.
	sameEnd = 100 * time.Millisecond
)

// stream sends the updates of one open page until its browser leaves, reads too slowly, or serving ends.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	sent    cells
	sentAt  moment
}

// send sends the cells that have changed.
func (s *stream) send(p page, now moment) error {
	changed := s.sent.changesTo(p.cells, now, s.sentAt)
	s.sent, s.sentAt = p.cells, now
	text, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString("data: ")
	b.Write(text)
	b.WriteString("\n\n")
	if err := s.control.SetWriteDeadline(time.Now().Add(updateLimit)); err != nil {
		return err
	}
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	return s.control.Flush()
}

// changesTo returns the cells of a later time that differ from c. A bar that ran down as expected does not differ.
func (c cells) changesTo(later cells, now, before moment) cells {
	changed := make(cells)
	passed := now.clock.Elapsed(before.clock)
	for key, is := range later {
		was, ok := c[key]
		if !ok || !was.same(is, passed) {
			changed[key] = is
		}
	}
	return changed
}

// same reports whether a cell is what this one has become after some time.
func (c cell) same(later cell, passed time.Duration) bool {
	if c.Bar == nil || later.Bar == nil {
		return c.Bar == nil && later.Bar == nil && c == later
	}
	if c.Tone != later.Tone || c.Bar.Whole != later.Bar.Whole {
		return false
	}
	expected := max(0, c.Bar.Left-passed.Milliseconds())
	moved := time.Duration(later.Bar.Left-expected) * time.Millisecond
	return moved.Abs() < sameEnd && (expected > 0) == (later.Bar.Left > 0)
}

// serveUpdates sends the updates of one page. The caller has counted it among the open pages.
func (c *Console) serveUpdates(w http.ResponseWriter, r *http.Request, v view) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.serving, cancel)()
	known, err := c.reader.get(ctx, v.before())
	if err != nil {
		return
	}
	rights, ok := c.stillPermits(r, v) // reading may have taken long
	if !ok {
		return
	}
	now := c.now()
	p := v.make(c.scopes.visible(known, rights), now)
	defer c.reader.open(p.wants)()
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{w: w, control: http.NewResponseController(w)}
	if s.control.SetReadDeadline(time.Time{}) != nil { // or net/http would end the request
		return
	}
	alive := time.NewTimer(keepAlive)
	defer alive.Stop()
	for {
		if s.send(p, now) != nil {
			return
		}
		alive.Reset(keepAlive)
		latest, changed := c.reader.latest()
		if latest == known {
			select {
			case <-changed:
			case <-alive.C:
			case <-ctx.Done():
				return
			}
			latest, _ = c.reader.latest()
		}
		known, now = latest, c.now()
		if rights, ok = c.stillPermits(r, v); !ok {
			return
		}
		p = v.make(c.scopes.visible(known, rights), now)
	}
}

// stillPermits returns the rights with which an open page goes on, and false if its viewer may no longer see it.
func (c *Console) stillPermits(r *http.Request, v view) (*Rights, bool) {
	if c.cfg.Access == nil {
		return nil, true
	}
	sender, err := c.identify(r)
	if err != nil || c.cfg.Access.Open() != nil || sender.permits(v) != nil {
		return nil, false
	}
	return sender.rights, true
}
