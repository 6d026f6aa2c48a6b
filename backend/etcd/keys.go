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

// queuePrefix is the prefix of all keys in the queue of a name.
func (b *Backend) queuePrefix(name string) string { return b.root + name + "/" }

// keyOf is the key of a lease in the queue of a name.
func (b *Backend) keyOf(name string, id int64) string {
	return b.queuePrefix(name) + strconv.FormatInt(id, 16)
}

// after is the end of the range of all keys with a prefix. "\x00" means that the range has no end.
func after(prefix string) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return append([]byte(prefix[:i]), prefix[i]+1)
		}
	}
	return []byte{0}
}

// from is the start of that range.
func from(prefix string) []byte {
	if prefix == "" {
		return []byte{0}
	}
	return []byte(prefix)
}

// idOf returns the lease that the last part of a key names, or 0 if it names none.
func idOf(part string) int64 {
	id, err := strconv.ParseInt(part, 16, 64)
	if err != nil || strconv.FormatInt(id, 16) != part {
		return 0
	}
	return id
}

// split returns the name and the lease of a key that looks like a key of a queue.
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

// isQueued reports whether a key is in the queue of a name. Such a key lies directly below the name, and is named after the
// lease that it is attached to.
func (b *Backend) isQueued(name string, kv *mvccpb.KeyValue) bool {
	of, id, ok := b.split(string(kv.Key))
	return ok && of == name && kv.Lease == id
}

// mayBeQueued is isQueued for keys that were read without their values. etcd 3.7 omits their leases too.
func (b *Backend) mayBeQueued(name string, kv *mvccpb.KeyValue) bool {
	of, id, ok := b.split(string(kv.Key))
	return ok && of == name && (kv.Lease == id || kv.Lease == 0)
}

// card is the value of a key. Other programs that follow the recipe put other values there.
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
		// json refuses nothing but a year that RFC 3339 cannot express.
		c.Started = time.Time{}
		data, _ = json.Marshal(c)
	}
	return data
}

// readCard returns the card in the value of a key, and whether the value is a card of this package.
func readCard(kv *mvccpb.KeyValue) (card, bool) {
	var c card
	if err := json.Unmarshal(kv.Value, &c); err != nil || c.Claim == "" || c.Holder == "" {
		return card{}, false
	}
	return c, true
}

// holderOf returns the holder that a key belongs to.
func holderOf(kv *mvccpb.KeyValue) backend.Holder {
	if c, ok := readCard(kv); ok {
		return backend.Holder{ID: c.Holder, Card: backend.Card{Host: c.Host, PID: c.PID, Started: c.Started, Text: c.Text}}
	}
	// The key of another program: only its lease identifies it.
	h := backend.Holder{ID: "etcd lease " + strconv.FormatInt(kv.Lease, 16)}
	if utf8.Valid(kv.Value) && len(kv.Value) <= backend.MaxCardText {
		h.Card.Text = string(kv.Value)
	}
	return h
}
