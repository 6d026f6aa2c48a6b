package ownership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// Each test here names guards of this package, and fails if exactly one of them is removed.

// play has a world execute commands of the transcripts, and returns what the last one says.
func play(t *testing.T, commands ...string) (w *world, said string) {
	t.Helper()
	w = newWorld()
	w.t = t
	for _, command := range commands {
		said = w.play(command)
	}
	return w, said
}

func (w *world) play(command string) string {
	w.env.View, w.env.At, w.env.Watched = w.newView(), w.at(), true
	words := strings.Fields(command)
	return w.runChange(words[0], words[1:])
}

// unreadable is a store that cannot be read.
type unreadable struct{}

var errUnreadable = errors.New("the store cannot be read")

func (unreadable) Tenure(string) (*Tenure, error)         { return nil, errUnreadable }
func (unreadable) Card(string, lessor.ID) ([]byte, error) { return nil, errUnreadable }
func (unreadable) Past(string, uint64) (*Tenure, error)   { return nil, errUnreadable }

// forget has the registry read tenures from the store again.
func (w *world) forget() {
	w.restart()
	w.env.View, w.env.At = View{Leases: w.leases, Stored: unreadable{}, Now: w.clock.Now()}, w.at()
}

// What the registry cannot read from the store is an error of the command or of the change of keys.
func TestErrorsOfTheStoreAreReturned(t *testing.T) {
	for what, ask := range map[string]func(w *world) error{
		"a claim that does not wait": func(w *world) error {
			_, _, err := w.registry.ClaimUnchanged(w.env.View, Claim{Name: "n", Lease: 9, TTL: time.Minute})
			return err
		},
		"a repeated claim": func(w *world) error {
			_, _, err := w.registry.ClaimUnchanged(w.env.View, Claim{Name: "n", Lease: 7, TTL: time.Minute})
			return err
		},
		"a pin": func(w *world) error { return w.registry.Pin(&w.env, Pin{Name: "n", Reason: "why"}) },
		"a revocation": func(w *world) error {
			_, _, err := w.registry.Revoke(&w.env, Revoke{Name: "n"})
			return err
		},
		"a finish that holds the name on": func(w *world) error {
			_, err := w.registry.Finish(&w.env, Finish{Name: "n", Lease: 7, Hold: time.Minute})
			return err
		},
		"a finish of a tenure that is over": func(w *world) error {
			w.registry.queues["n"].ended = 1
			_, _, err := w.registry.CheckFinish(w.env.View, Finish{Name: "n", Lease: 9})
			return err
		},
		"a new owner of a held name": func(w *world) error {
			w.registry.KeyDeleted(Key("n", 7))
			return w.registry.UpdateOwners(&w.env, 99, WhyDeleted, "")
		},
		"a new owner's card": func(w *world) error {
			w.registry.queues["n"].current = new(Tenure)
			w.registry.KeyDeleted(Key("n", 7))
			return w.registry.UpdateOwners(&w.env, 99, WhyDeleted, "")
		},
		"a card that changes": func(w *world) error {
			w.registry.KeyPut(Key("n", 7), []byte("card"), 7, w.keys["n/7"].created)
			return w.registry.UpdateOwners(&w.env, 99, WhyDeleted, "")
		},
	} {
		w, _ := play(t, "claim n 7 1m", "claim n 8 1m wait")
		w.forget()
		if err := ask(w); !errors.Is(err, errUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A lease hands on only the name that it owns.
func TestTransferIsOfTheNamedLeaseAndName(t *testing.T) {
	w, _ := play(t, "claim n 7 1m", "claim n 8 1m wait", "claim m 9 1m")
	for _, op := range []Transfer{{Name: "m", Lease: 7}, {Name: "n", Lease: 8}, {Name: "n", Lease: 99}} {
		if next, err := w.registry.Transfer(op); err != ErrLost {
			t.Errorf("%+v: token %d, %v", op, next, err)
		}
	}
}

// A lease that owns one name and waits for another, or never owns it, is judged by the name that it owns.
func TestNamesThatALeaseWaitsForSayNothingOfIt(t *testing.T) {
	w, _ := play(t, "grant 7 1m", "put n/7=7", "claim m 8 1m", "put m/7=7", "revoke m because")
	if note := w.registry.RevocationNote(w.leases, 7); note != "" {
		t.Errorf("lease 7 was revoked as the owner of a name that it waits for: %q", note)
	}
	if note := w.registry.RevocationNote(w.leases, 8); note != "because" {
		t.Errorf("lease 8 was revoked with the note %q", note)
	}
	// A key that is older than the last owner's never owns the name.
	w, _ = play(t, "grant 7 1m", "put n/7=7", "claim m 8 1m", "release m 8")
	w.must(w.leases.Attach(7, []lessor.Item{{Key: "m/7"}}))
	w.registry.KeyPut(Key("m", 7), nil, 7, 1)
	w.must(w.registry.UpdateOwners(&w.env, 99, WhyDeleted, ""))
	_, barred, _ := w.registry.Waiters("m")
	if !slices.Equal(barred, []lessor.ID{7}) {
		t.Fatalf("barred are %v", barred)
	}
	if note := w.registry.RevocationNote(w.leases, 7); note != "" {
		t.Errorf("lease 7 was revoked with the note %q", note)
	}
}

// Each name that a lease owns shows the note with which it was revoked itself.
func TestEachNameShowsItsOwnRevocation(t *testing.T) {
	w, _ := play(t, "grant 7 1m", "put n/7=7", "put m/7=7", "revoke n first", "revoke m second")
	for name, want := range map[string]string{"n": "first", "m": "second"} {
		if s := w.registry.State(w.newView(), name); s.Revoked == nil || *s.Revoked != want {
			t.Errorf("%s", showState(s))
		}
	}
	if s := w.registry.State(w.newView(), "unknown"); s.Held || s.Name != "unknown" {
		t.Errorf("%s", showState(s))
	}
}

// A waiter that never owns the name leaves the owner of a long queue in its place.
func TestBarredWaiterLeavesTheOwnerAlone(t *testing.T) {
	g := New()
	for i := range fewWaiters + 2 {
		g.claimFor("n", lessor.ID(100+i))
	}
	q := g.queues["n"]
	q.owner = q.head()
	g.join(q, 5, 5)
	if len(q.barred) != 1 {
		t.Fatal("the older key is not barred")
	}
	g.leave(q, 5)
	if q.head().lease != 100 || len(q.waiters) != fewWaiters+2 || len(q.barred) != 0 {
		t.Errorf("lease %d is first of %d", q.head().lease, len(q.waiters))
	}
}

// A name is remembered for as long as there is a key that never owns it.
func TestNameWithABarredKeyIsKnown(t *testing.T) {
	w, _ := play(t, "claim n 8 1m", "grant 7 1m")
	w.registry.forgotten = 50
	w.registry.KeyPut(Key("m", 7), nil, 7, 40)
	for range 2 {
		w.must(w.registry.UpdateOwners(&w.env, 99, WhyDeleted, ""))
		w.registry.touch(w.registry.queue([]byte("m")))
	}
	if _, barred, known := w.registry.Waiters("m"); !known || len(barred) != 1 {
		t.Errorf("known is %v, barred are %v", known, barred)
	}
}

// The card of a tenure is bounded, and so is the memory of effects that is used again.
func TestCardsAndSpareMemoryAreBounded(t *testing.T) {
	if got := storedCard(make([]byte, maxCard)); len(got) != maxCard {
		t.Errorf("of the longest card %d bytes are stored", len(got))
	}
	if got := storedCard(make([]byte, maxCard+1)); got != nil {
		t.Errorf("of a longer card %d bytes are stored", len(got))
	}
	if got := emptied(make([]int, 1, maxSpareEffects)); cap(got) != maxSpareEffects || len(got) != 0 {
		t.Errorf("of little memory %d are kept", cap(got))
	}
	if got := emptied(make([]int, 1, maxSpareEffects+1)); got != nil {
		t.Errorf("of much memory %d are kept", cap(got))
	}
}

// A claim whose name was not stored is one for whatever name its key says. Keys and records must name the same holder.
func TestRestoredKeysAndRecordsAgree(t *testing.T) {
	for _, c := range []struct {
		name    string // stored with the claim
		lease   lessor.ID
		created int64 // of the key
		want    string
	}{
		{"", 7, 5, ""},
		{"n", 7, 5, ""},
		{"m", 7, 5, "waits for no name"},
		{"n", 7, 6, "its key does not"},
	} {
		g := New()
		g.RestoreClaim(7, ClaimRecord{Name: c.name})
		g.RestoreRecord(Record{Name: "n", Current: &Tenure{Token: 5, Lease: 7}})
		g.RestoreKey(Key("n", c.lease), c.lease, c.created)
		_, err := g.Complete()
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if of, ok := g.ClaimOf(7); c.want == "" && (!ok || of != "n") {
			t.Errorf("%+v: the claim is for %q, %v", c, of, ok)
		}
	}
	g := New()
	g.RestoreRecord(Record{Name: "n", Current: &Tenure{Token: 5, Lease: 7}})
	g.RestoreKey(Key("n", 8), 8, 5)
	if _, err := g.Complete(); err == nil {
		t.Error("the record names another lease than the key, and nothing is said")
	}
}
