package etcd

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasekeeper/leasekeeper/backend"
)

// line is what the keys of all who want a name begin with.
func (b *Backend) queuePrefix(name string) string { return b.root + name + "/" }

// keyOf is the key of a lease in the line of a name.
func (b *Backend) keyOf(name string, id int64) string {
	return b.queuePrefix(name) + strconv.FormatInt(id, 16)
}

// after is the end of the interval of all keys that begin with prefix; "\x00" means that there is none.
func after(prefix string) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return append([]byte(prefix[:i]), prefix[i]+1)
		}
	}
	return []byte{0}
}

// from is the start of that interval.
func from(prefix string) []byte {
	if prefix == "" {
		return []byte{0}
	}
	return []byte(prefix)
}

// idOf returns the lease that the last part of a key names, 0 if it names none.
func idOf(part string) int64 {
	id, err := strconv.ParseInt(part, 16, 64)
	if err != nil || strconv.FormatInt(id, 16) != part {
		return 0
	}
	return id
}

// split returns the name that a key contends for, if it looks like a key of a line.
func (b *Backend) split(key string) (name string, id int64, ok bool) {
	rest, ok := strings.CutPrefix(key, b.root)
	if !ok {
		return "", 0, false
	}
	slash := strings.LastIndexByte(rest, '/')
	if slash < 0 {
		return "", 0, false
	}
	name, id = rest[:slash], idOf(rest[slash+1:])
	return name, id, id != 0 && backend.CheckName(name) == nil
}

// contends says whether a key stands in the line of a name: it is directly below it, and named after the
// lease that it is bound to.
func (b *Backend) isQueued(name string, kv *mvccpb.KeyValue) bool {
	of, id, ok := b.split(string(kv.Key))
	return ok && of == name && kv.Lease == id
}

// mayBeQueued is contends for keys that were read without their values: etcd 3.7 then leaves out their leases
// as well.
func (b *Backend) mayBeQueued(name string, kv *mvccpb.KeyValue) bool {
	of, id, ok := b.split(string(kv.Key))
	return ok && of == name && (kv.Lease == id || kv.Lease == 0)
}

// card is the value of a key. Programs that follow the recipe on their own put other things there.
type card struct {
	Claim   string    `json:"claim"` // the claim's ID
	Holder  string    `json:"holder"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Text    string    `json:"text,omitempty"`
	TTL     int64     `json:"ttl"` // granted, in seconds
}

func newCard(c backend.Claim, ttl time.Duration) card {
	made := card{Claim: hex.EncodeToString(c.ID[:]), TTL: ttlUnit.Count(ttl)}
	made.of(c.Holder)
	return made
}

// of puts a holder on the card.
func (c *card) of(h backend.Holder) {
	c.Holder, c.Host, c.PID, c.Started, c.Text = h.ID, h.Card.Host, h.Card.PID, h.Card.Started, h.Card.Text
}

func (c *card) bytes() []byte {
	data, err := json.Marshal(c)
	if err != nil {
		// Only a year that RFC 3339 cannot express is refused.
		c.Started = time.Time{}
		data, _ = json.Marshal(c)
	}
	return data
}

// readCard returns the card that is the value of a key, and whether it is one of this package.
func readCard(kv *mvccpb.KeyValue) (card, bool) {
	var c card
	if err := json.Unmarshal(kv.Value, &c); err != nil || c.Claim == "" || c.Holder == "" {
		return card{}, false
	}
	return c, true
}

// holderOf tells who stands behind a key.
func holderOf(kv *mvccpb.KeyValue) backend.Holder {
	if c, ok := readCard(kv); ok {
		return backend.Holder{ID: c.Holder, Card: backend.Card{Host: c.Host, PID: c.PID, Started: c.Started, Text: c.Text}}
	}
	// Another program, which is known by its lease only.
	h := backend.Holder{ID: "etcd lease " + strconv.FormatInt(kv.Lease, 16)}
	if utf8.Valid(kv.Value) && len(kv.Value) <= backend.MaxCardText {
		h.Card.Text = string(kv.Value)
	}
	return h
}
