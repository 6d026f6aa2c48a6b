package replica

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// What tests of a whole member need for names.

// flushed is the database as it would be if everything in it were in its place.
func (w *world) flushed() *pebble.Batch {
	view := w.replica.db.NewIndexedBatch()
	w.replica.buffer.WriteTo(view)
	return view
}

// flush has the database show all that is remembered of names.
func (w *world) flush() {
	w.t.Helper()
	if err := w.replica.Flush(); err != nil {
		w.t.Fatalf("flushing: %v", err)
	}
}

// dumpNames shows the records of names, on the disk and in memory.
func (w *world) dumpNames(b *strings.Builder) {
	w.t.Helper()
	view := w.flushed()
	defer view.Close()
	err := record.Names(view, func(m *logpb.Name) bool {
		fmt.Fprintf(b, "name %s", m.Name)
		if m.Current != nil {
			fmt.Fprintf(b, " held by %s", showTenure(m.Current))
		}
		for _, reason := range []struct {
			what string
			text []byte
		}{{"pinned", m.Pinned}, {"revoked", m.Revoked}} {
			if reason.text != nil {
				fmt.Fprintf(b, " %s %q", reason.what, reason.text)
			}
		}
		if waiters, barred, known := w.replica.names.Waiters(string(m.Name)); known {
			fmt.Fprintf(b, " queue%s", showQueue(waiters))
			if len(barred) > 0 {
				fmt.Fprintf(b, " barred%s", showQueue(barred))
			}
		} else {
			b.WriteString(" unknown")
		}
		fmt.Fprintf(b, " freed %d.%d revision %d\n", m.Freed, m.FreedOrder, m.Revision)
		past, err := record.History(view, string(m.Name))
		if err != nil {
			w.t.Errorf("history of %s: %v", m.Name, err)
		}
		for _, t := range past {
			if t.Why != 0 {
				fmt.Fprintf(b, "  before: lease %d token %d %s %q\n", t.Lease, t.Token, showWhy(t.Why), t.Note)
			}
		}
		return true
	})
	if err != nil {
		w.t.Fatalf("names: %v", err)
	}
	for _, name := range w.replica.names.FreeNames() {
		fmt.Fprintf(b, "free %s\n", name)
	}
	for _, id := range w.replica.names.Claims() {
		name, _ := w.replica.names.ClaimOf(id)
		fmt.Fprintf(b, "claim %d of %s\n", id, name)
	}
}

func showTenure(t *logpb.Tenure) string {
	text := fmt.Sprintf("lease %d token %d %q", t.Lease, t.Token, t.Holder)
	if t.Finished {
		text += " finished"
	}
	return text
}

func showQueue(queue []lessor.ID) string {
	var b strings.Builder
	for _, id := range queue {
		fmt.Fprintf(&b, " %d", id)
	}
	return b.String()
}

func showWhy(w ownership.Why) string {
	return [...]string{"", "released", "expired", "revoked", "transferred", "deleted"}[w]
}

// nameEvent is an event of a transcript that is about names, or nil.
func (s *scene) nameEvent(id uint64, words []string) Event {
	switch words[0] {
	case "claim":
		return Request{ID: id, Command: ownership.Claim{
			Name: words[1], Lease: s.lease(words[2]), TTL: transcript.Duration(s.t, words[3]),
			Holder: []byte("holder-" + words[2]), Wait: len(words) > 4, Priority: int32(max(0, len(words)-5)),
		}}
	case "prefer":
		return Request{ID: id, Command: ownership.Prefer{Name: words[1], Lease: s.lease(words[2])}}
	case "release":
		return Request{ID: id, Command: ownership.Release{Name: words[1], Lease: s.lease(words[2])}}
	case "revoke-name":
		return Request{ID: id, Command: ownership.Revoke{Name: words[1], Note: words[2], Now: len(words) > 3}}
	case "transfer":
		return Request{ID: id, Command: ownership.Transfer{Name: words[1], Lease: s.lease(words[2])}}
	case "finish":
		op := ownership.Finish{Name: words[1], Lease: s.lease(words[2]), Tick: s.tick(words[3])}
		if len(words) > 4 {
			op.Hold = transcript.Duration(s.t, words[4])
		}
		return Request{ID: id, Command: op}
	case "raise":
		return Request{ID: id, Command: ownership.RaiseMark{Name: words[1], Lease: s.lease(words[2]), Tick: s.tick(words[3])}}
	case "pin":
		return Request{ID: id, Command: ownership.Pin{Name: words[1], Reason: words[2]}}
	case "unpin":
		return Request{ID: id, Command: ownership.Unpin{Name: words[1]}}
	case "name":
		return Inspection{ID: id, Query: NamesQuery{Names: words[1:2]}}
	case "place":
		return Inspection{ID: id, Query: PlaceQuery{Name: words[1], Lease: s.lease(words[2])}}
	}
	return nil
}

func (s *scene) tick(word string) string {
	if word == "none" {
		return ""
	}
	return word
}

func showNameCommand(c *logpb.Command) string {
	switch op := c.Op.(type) {
	case *logpb.Command_Claim:
		return fmt.Sprintf("claim %s %d", op.Claim.Name, op.Claim.Id)
	case *logpb.Command_Release:
		return fmt.Sprintf("release %s %d", op.Release.Name, op.Release.Id)
	case *logpb.Command_RevokeName:
		return fmt.Sprintf("revoke-name %s now %v", op.RevokeName.Name, op.RevokeName.Now)
	case *logpb.Command_Transfer:
		return fmt.Sprintf("transfer %s %d", op.Transfer.Name, op.Transfer.Id)
	case *logpb.Command_RankedClaim:
		return fmt.Sprintf("claim %s %d with priority %d", op.RankedClaim.Name, op.RankedClaim.Id, op.RankedClaim.Priority)
	case *logpb.Command_Prefer:
		return fmt.Sprintf("prefer %s %d", op.Prefer.Name, op.Prefer.Id)
	case *logpb.Command_Finish:
		return fmt.Sprintf("finish %s %d tick %q", op.Finish.Name, op.Finish.Id, op.Finish.Tick)
	case *logpb.Command_RaiseMark:
		return fmt.Sprintf("raise %s %d to %q", op.RaiseMark.Name, op.RaiseMark.Id, op.RaiseMark.Tick)
	case *logpb.Command_Pin:
		return fmt.Sprintf("pin %s", op.Pin.Name)
	case *logpb.Command_Unpin:
		return fmt.Sprintf("unpin %s", op.Unpin.Name)
	}
	return fmt.Sprintf("%T", c.Op)
}

func showNameReply(result Result) string {
	switch result := result.(type) {
	case ownership.Claimed:
		switch {
		case result.Lease == lessor.NoLease:
			return "refused: " + showState(*result.Current)
		case result.Before > 0:
			return fmt.Sprintf("lease %d waits behind %d, token %d", result.Lease, result.Before, result.Token)
		}
		return fmt.Sprintf("lease %d holds it for %v, token %d", result.Lease, result.TTL, result.Token)
	case ownership.Released:
		return fmt.Sprintf("ended %v", result.Ended)
	case ownership.Revoked:
		return fmt.Sprintf("revoked token %d, free in %v", result.Token, result.Left)
	case ownership.Transferred:
		return fmt.Sprintf("token %d holds it", result.Token)
	case NameStates:
		return showState(result.Names[0])
	case ownership.Place:
		return fmt.Sprintf("behind %d, token %d", result.Before, result.Token)
	}
	return ""
}

func showState(s ownership.State) string {
	text := s.Name + " is free"
	if s.Held {
		text = fmt.Sprintf("%s is held by lease %d, token %d, for %v of %v, %d wait", s.Name, s.Lease, s.Token, s.Left, s.TTL, s.Waiting)
	}
	if s.Pinned != nil {
		text += fmt.Sprintf(", pinned %q", *s.Pinned)
	}
	if s.Revoked != nil {
		text += fmt.Sprintf(", revoked %q", *s.Revoked)
	}
	if s.Finished {
		text += ", finished"
	}
	return text
}

func showNameChange(c ownership.Change) string {
	kind := [...]string{"", "acquired", "vacated", "card changed", "status changed", "wait ended"}[c.Kind]
	text := fmt.Sprintf("publish name %s: %s", c.State.Name, kind)
	if c.Kind != ownership.WaitEnded && c.State.Held {
		text += fmt.Sprintf(" by lease %d", c.State.Lease)
	}
	if c.Lease != lessor.NoLease {
		text += fmt.Sprintf("; lease %d %s %q", c.Lease, showWhy(c.Why), c.Note)
	}
	return text
}

// randomNameEvent makes up an event about one of three names. Their leases are apart from those of
// randomEvent, but now and then a key or a lease is treated as etcd's API would.
func randomNameEvent(rng *rand.Rand, id uint64) Event {
	name := []string{"n", "n/m", "o"}[rng.IntN(3)]
	lease := lessor.ID(16 + int(id)/12 + rng.IntN(4)) // ids are not used again
	switch rng.IntN(20) {
	case 0, 1, 2, 3, 4:
		ttl := time.Duration(200+100*(int(lease)%7)) * time.Millisecond
		return Request{ID: id, Command: ownership.Claim{Name: name, Lease: lease, TTL: ttl, Holder: fmt.Appendf(nil, "h%d", id), Wait: rng.IntN(3) > 0, Priority: int32(rng.IntN(4)) - 1}}
	case 5, 6:
		return Request{ID: id, Command: ownership.Release{Name: name, Lease: lease}}
	case 7:
		return Request{ID: id, Command: ownership.Revoke{Name: name, Note: "note", Now: rng.IntN(2) == 0}}
	case 8:
		return Request{ID: id, Command: ownership.Transfer{Name: name, Lease: lease}}
	case 9:
		return Request{ID: id, Command: ownership.Pin{Name: name, Reason: "pinned"}}
	case 10:
		return Request{ID: id, Command: ownership.Unpin{Name: name}}
	case 11:
		return Request{ID: id, Command: keyspace.DeleteRequest{Key: ownership.Key(name, lease)}}
	case 12: // a waiter by the recipe of etcd, if the lease is there
		return Request{ID: id, Command: keyspace.PutRequest{Key: ownership.Key(name, lease%6+1), Lease: int64(lease%6 + 1)}}
	case 13: // a key that is attached later than created, or detached
		return Request{ID: id, Command: keyspace.PutRequest{Key: ownership.Key(name, lease), Lease: int64(rng.IntN(2)) * int64(lease)}}
	case 14:
		return Request{ID: id, Command: entry.Revoke{Lease: lease}}
	case 15, 16:
		hold := time.Duration(rng.IntN(2)*rng.IntN(900)) * time.Millisecond
		return Request{ID: id, Command: ownership.Finish{Name: name, Lease: lease, Token: int64(rng.IntN(40)), Tick: randomTick(rng), Hold: hold}}
	case 18:
		return Request{ID: id, Command: ownership.Prefer{Name: name, Lease: lease}}
	case 17:
		return Request{ID: id, Command: ownership.RaiseMark{Name: name, Lease: lease, Tick: backend.TickNumber(int64(rng.IntN(99))).String()}}
	}
	return Renewal{ID: id, Leases: []lessor.ID{lease, lease + 1}}
}

// randomTick is a number, seldom a time, or none.
func randomTick(rng *rand.Rand) string {
	switch rng.IntN(8) {
	case 0:
		return ""
	case 1:
		return backend.TickAt(time.Unix(int64(rng.IntN(9)), 0)).String()
	}
	return backend.TickNumber(int64(rng.IntN(99))).String()
}
