package namejson

import (
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Name describes a name.
type Name struct {
	Name        string  `json:"name"`
	Held        bool    `json:"held"`
	Holder      *Holder `json:"holder,omitempty"`
	Token       uint64  `json:"token"` // the token of the holder, or the last token; 0 if the store does not remember it
	TTLMS       int64   `json:"ttl_ms,omitempty"`
	RemainingMS *int64  `json:"remaining_ms,omitempty"` // missing if the store does not know
	Waiting     *int    `json:"waiting,omitempty"`      // missing if the store does not know
	Pinned      string  `json:"pinned,omitempty"`       // the reason of the pin
}

// Holder describes the holder of a name.
type Holder struct {
	ID      string     `json:"id"`
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Text    string     `json:"text,omitempty"`
}

// Tenure describes one tenure of a name.
type Tenure struct {
	Token  uint64     `json:"token"`
	Holder *Holder    `json:"holder"`
	From   *time.Time `json:"from,omitempty"`
	To     *time.Time `json:"to,omitempty"` // missing while the tenure lasts
	Why    string     `json:"why,omitempty"`
	Note   string     `json:"note,omitempty"`
}

// OfName returns the JSON of a name.
func OfName(i backend.Info) Name {
	n := Name{Name: i.Name, Held: i.Held, Token: uint64(i.Token), Pinned: i.Pinned}
	if i.Held {
		n.Holder, n.TTLMS = OfHolder(i.Holder), i.TTL.Milliseconds()
		if i.Remaining >= 0 {
			left := i.Remaining.Milliseconds()
			n.RemainingMS = &left
		}
	}
	if i.Waiting >= 0 {
		n.Waiting = &i.Waiting
	}
	return n
}

// OfHolder returns the JSON of a holder.
func OfHolder(h backend.Holder) *Holder {
	return &Holder{ID: h.ID, Host: h.Card.Host, PID: h.Card.PID, Started: utc(h.Card.Started), Text: h.Card.Text}
}

// OfTenure returns the JSON of a tenure.
func OfTenure(t backend.Tenure) Tenure {
	return Tenure{
		Token: uint64(t.Token), Holder: OfHolder(t.Holder), From: utc(t.From), To: utc(t.To), Why: string(t.Why), Note: t.Note,
	}
}

// utc returns a time in UTC, or nil for the zero time, which means unknown.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
