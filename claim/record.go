package claim

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Op identifies one write of a record. It is random and never used again. Every conditional write compares it,
// so a write replaces exactly the record on which it was decided. The zero Op means that there is no record.
type Op [16]byte

// NewOp returns an Op that was never used.
func NewOp() (op Op) {
	_, _ = rand.Read(op[:]) // never fails
	return op
}

// String returns 32 hexadecimal digits.
func (op Op) String() string { return hex.EncodeToString(op[:]) }

// MaxPast is how many tenures a record remembers.
const MaxPast = 16

// Record is what a store keeps about one name. Release and expiry do not delete it: it stays as a tombstone, so
// that tokens never start again.
//
// Written and Expiry are on the two clocks of Domain, to which the last writer belonged. They are compared with
// a clock only in that domain; elsewhere only their difference counts.
type Record struct {
	Name   string
	Holder string // the holder's id; empty: vacant
	// Token rises by one with every change of ownership: claim, takeover, release, expiry.
	Token backend.Token
	Op    Op // of the last write
	// Incarnation is the id of the claim. It tells apart holders that have the same id.
	Incarnation backend.ID
	Domain      clock.Domain
	Written     clock.Instant // before the send of the last write
	Expiry      clock.Instant // until when the lease was promised; of a tombstone the same as Written
	TTL         time.Duration // granted; 0 of a tombstone
	Pins        []string      // why the tenure must not end, sorted; a pin outlives the tenure
	Card        backend.Card
	Revoked     string    // why renewals are refused; empty if they are not
	Since       time.Time // wall clock of the claim, for people to read
	// Past has the last tenures that ended, newest first, at most MaxPast.
	Past []backend.Tenure
	// Mark is the highest completed tick of the name. Its holder raises it ([Client.RaiseMark], [Client.Finish]). It
	// outlives the tenure, and all other writes leave it as it is.
	Mark backend.Mark
}

// heldOn is what Revoked says of a tenure whose holder has released it by [Client.Finish], and whose name stays held
// for a while. Renewals of it are refused like those of a revoked tenure, also by programs that do not know this text.
const heldOn = "released; the name is only held on"

// Exists reports whether the store has a record.
func (r *Record) Exists() bool { return r.Op != Op{} }

// Held reports whether the record names a holder. Its lease may have expired all the same.
func (r *Record) Held() bool { return r.Holder != "" }

// HeldOn reports whether the holder has released the name, which stays held until the promise has passed.
func (r *Record) HeldOn() bool { return r.Held() && r.Revoked == heldOn }

// EndsAs returns why the tenure of a held record ends if its holder writes no more, and the note for its history.
func (r *Record) EndsAs() (why backend.Reason, note string) {
	if r.Revoked != "" && r.Revoked != heldOn {
		return backend.Revoked, r.Revoked
	}
	return backend.Expired, ""
}

// refusal says why a record whose Revoked is not empty is not renewed.
func (r *Record) refusal() string {
	if r.HeldOn() {
		return "was " + r.Revoked
	}
	return "was revoked: " + backend.Printable(r.Revoked)
}
