package ferrettest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Tests of the defects of other locks in MongoDB, by their codes in docs/design/earlier-defects.md.

// manualClocks is a pair of clocks that a test moves.
type manualClocks struct {
	mu  sync.Mutex
	now clock.Instant
}

func (h *manualClocks) Now() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *manualClocks) Moved() <-chan struct{} { return nil }

func (h *manualClocks) move(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// machine is a client on a machine of its own, with clocks that are moved by hand.
type machine struct {
	*claim.Client
	clock *manualClocks
	store *mongodb.Store
}

func newMachine(t *testing.T, p *Proxy, name string) machine {
	t.Helper()
	h := &manualClocks{now: clock.Instant{Raw: int64(len(name)) * 1e15, Boot: 5}}
	s := open(t, connect(t, p.URI()), mongodb.Config{})
	c, err := claim.NewClient(s, claim.Options{Clock: h, Domain: clock.Domain(name)})
	if err != nil {
		t.Fatal(err)
	}
	return machine{c, h, s}
}

// claim claims jobs/x.
func (m machine) claim(t *testing.T, holder string, ttl time.Duration) (*claim.Lease, error) {
	return m.Claim(t.Context(), claim.Request{Name: "jobs/x", ID: backend.ID(claim.NewOp()), Holder: backend.Holder{ID: holder}, TTL: ttl})
}

func (m machine) holds(t *testing.T, holder string, ttl time.Duration) *claim.Lease {
	t.Helper()
	l, err := m.claim(t, holder, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// isHeld fails unless a claim is refused because this holder has the name.
func (m machine) isHeld(t *testing.T, by string) {
	t.Helper()
	l, err := m.claim(t, "thief", time.Minute)
	var held *backend.HeldError
	if !errors.As(err, &held) || held.Holder.ID != by {
		t.Errorf("%v, %v", l, err)
	}
}

// Defect S1: the token goes back when the lock is deleted.
func TestTokensNeverGoBack(t *testing.T) {
	p := Start(t)
	m := newMachine(t, p, "m")
	var last backend.Token
	for range 3 {
		l := m.holds(t, "a", time.Minute)
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		if err := m.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	// Not even when old records are collected.
	if n, err := m.Collect(t.Context(), claim.Collection{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if f, err := m.store.Get(t.Context(), "jobs/x"); f.Record.Exists() || f.Floor < last || err != nil {
		t.Fatalf("%+v, %v", f, err)
	}
	if l := m.holds(t, "b", time.Minute); l.Token() <= last {
		t.Errorf("token %d after %d", l.Token(), last)
	}
}

// Defect S2: a client with a fast clock steals leases. Defect S3: a client with a short TTL steals leases from
// holders with a longer one.
func TestFastClockOrShortTTLStealsNoLease(t *testing.T) {
	p := Start(t)
	a, b := newMachine(t, p, "m"), newMachine(t, p, "another machine")
	a.holds(t, "a", time.Hour)
	b.clock.move(365 * 24 * time.Hour) // before its first read
	b.isHeld(t, "a")
	b.clock.move(59 * time.Minute) // with a TTL of a minute of its own
	b.isHeld(t, "a")
	b.clock.move(3 * time.Minute)
	if l, err := b.claim(t, "b", time.Minute); err != nil || l.Token() != 2 {
		t.Errorf("after the whole hour: %v, %v", l, err)
	}
}

// Defect S4: a renewal adds to the old end, which may have passed, or moves it ever further into the future.
func TestRenewalCountsFromNow(t *testing.T) {
	p := Start(t)
	m := newMachine(t, p, "m")
	l := m.holds(t, "a", time.Minute)
	for range 5 {
		if err := m.Extend(t.Context(), l, 0); err != nil {
			t.Fatal(err)
		}
	}
	f, err := m.store.Get(t.Context(), "jobs/x")
	if want := m.clock.Now().Add(time.Minute); err != nil || f.Record.Expiry != want {
		t.Errorf("after early renewals it ends at %v, and not at %v: %v", f.Record.Expiry, want, err)
	}
	m.clock.move(50 * time.Second)
	if err := m.Extend(t.Context(), l, 0); err != nil {
		t.Fatal(err)
	}
	m.clock.move(50 * time.Second)
	m.isHeld(t, "a")
	if !m.clock.Now().Before(l.Until()) {
		t.Error("it has ended before its time")
	}
}

// Defect S5: the holder relies on the lease after its end, because the answer was slow.
func TestSlowAnswerDoesNotExtendTheDeadline(t *testing.T) {
	p := Start(t)
	m := newMachine(t, p, "m")
	if err := m.Release(t.Context(), m.holds(t, "a", time.Minute)); err != nil {
		t.Fatal(err)
	}
	moved := 0
	p.Judge(func(name string, body bson.Raw) Fate {
		if into, _ := body.Lookup(name).StringValueOK(); name == "update" && into == "leasekeeper_leases" {
			moved++
			m.clock.move(time.Second) // during the call
		}
		return Pass
	})
	defer p.Judge(nil)
	sent := m.clock.Now()
	l := m.holds(t, "a", time.Minute)
	if moved != 1 || l.Until() != sent.Add(time.Minute) {
		t.Errorf("it is relied on until %v, and was asked for at %v", l.Until(), sent)
	}
	p.Judge(nil)
	other := newMachine(t, p, "another machine")
	other.isHeld(t, "a")
	m.clock.move(2 * time.Minute)
	if m.clock.Now().Before(l.Until()) {
		t.Error("it is believed to be held after its end")
	}
}

// Defect S6: a lost answer leaves a lock of which no client knows. Here repeating the claim finds it.
func TestLostAnswerLocksNoClientOut(t *testing.T) {
	p := Start(t)
	m := newMachine(t, p, "m")
	p.Judge(func(name string, body bson.Raw) Fate {
		if into, _ := body.Lookup(name).StringValueOK(); name == "insert" && into == "leasekeeper_leases" {
			return LoseAnswer
		}
		return Pass
	})
	l, err := m.claim(t, "a", time.Hour)
	p.Judge(nil)
	if err != nil && !errors.Is(err, backend.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if l == nil {
		t.Fatal("nothing to claim again with")
	}
	again, err := m.Claim(t.Context(), claim.Request{Name: "jobs/x", ID: l.Incarnation(), Holder: backend.Holder{ID: "a"}, TTL: time.Hour})
	if err != nil || again.Token() != 1 {
		t.Errorf("%v, %v", again, err)
	}
}

// Defect S7: an index that is to remove old locks does nothing, or makes tokens start again. This store creates
// none; the tests of package mongodb have one that exists. Defect S8: without a unique index there is no
// exclusion. This store needs only the one on _id, which every collection has.
func TestNoIndexIsNeeded(t *testing.T) {
	p := Start(t)
	client := connect(t, p.URI())
	s := open(t, client, mongodb.Config{})
	r := aRecord("jobs/x", 1)
	if _, err := s.Swap(t.Context(), claim.Swap{Record: r}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Observe(t.Context(), "jobs/x", "d", r.Op, clock.Instant{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Acknowledge(t.Context(), "d", clock.Instant{}); err != nil {
		t.Fatal(err)
	}
	db := databaseOf(t, client)
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	slices.Sort(names)
	if want := []string{"leasekeeper_clocks", "leasekeeper_leases", "leasekeeper_namespaces", "leasekeeper_sightings"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("collections %v, %v", names, err)
	}
	for _, name := range names {
		all, err := db.Collection(name).Indexes().ListSpecifications(t.Context())
		if err != nil || len(all) != 1 || all[0].Name != "_id_" || all[0].ExpireAfterSeconds != nil {
			t.Errorf("%s has the indexes %v, %v", name, all, err)
		}
	}
}

// Defect S9: errors are the driver's own, and a release with an ended context silently leaves the lock.
func TestErrorsSayWhatHappened(t *testing.T) {
	p := Start(t)
	m := newMachine(t, p, "m")
	l := m.holds(t, "a", time.Hour)
	m.isHeld(t, "a")
	ended, end := context.WithCancel(t.Context())
	end()
	if err := m.Release(ended, l); err == nil {
		t.Error("a release under a context that has ended succeeded in silence")
	}
	if err := m.Release(t.Context(), l); err != nil {
		t.Error(err)
	}
	if err := m.Extend(t.Context(), l, 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a lease that was released: %v", err)
	}
}

// Defect S11: two processes with one holder id take each other's locks for their own.
func TestOneHolderIDInTwoProcessesIsTwoHolders(t *testing.T) {
	p := Start(t)
	one, two := newMachine(t, p, "m"), newMachine(t, p, "another machine")
	l := one.holds(t, "same", time.Hour)
	two.isHeld(t, "same")
	one.clock.move(2 * time.Hour)
	two.clock.move(3 * time.Hour)
	next := two.holds(t, "same", time.Hour)
	if err := one.Extend(t.Context(), l, 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("the first of them renews the second's lease: %v", err)
	}
	if err := one.Release(t.Context(), l); err != nil && !errors.Is(err, backend.ErrLost) {
		t.Error(err)
	}
	if err := two.Extend(t.Context(), next, 0); err != nil {
		t.Errorf("the first of them has released the second's lease: %v", err)
	}
}

// Defect S12: the fields differ from the documentation. This is what it says.
func TestFieldsAreDocumented(t *testing.T) {
	p := Start(t)
	client := connect(t, p.URI())
	s := open(t, client, mongodb.Config{})
	r := aRecord("jobs/a.b$c", 7)
	r.Pins, r.Revoked, r.Since = []string{"why"}, "because", time.UnixMilli(1700000000123)
	r.Card = backend.Card{Host: "h", PID: 3, Started: time.UnixMilli(1600000000000), Text: "t"}
	r.Past = []backend.Tenure{{Token: 5, Holder: backend.Holder{ID: "b"}, From: r.Card.Started, To: r.Since, Why: backend.Expired, Note: "n"}}
	if _, err := s.Swap(t.Context(), claim.Swap{Record: r, Owner: true}); err != nil {
		t.Fatal(err)
	}
	var d bson.D
	err := databaseOf(t, client).Collection("leasekeeper_leases").FindOne(t.Context(), bson.D{{Key: "_id", Value: "default/jobs/a.b$c"}},
		options.FindOne().SetProjection(bson.D{{Key: "incarnation", Value: 0}, {Key: "op", Value: 0}})).Decode(&d)
	if err != nil {
		t.Fatal(err)
	}
	text, err := bson.MarshalExtJSON(d, false, false)
	want := `{"_id":"default/jobs/a.b$c","ns":"default","name":"jobs/a.b$c","mode":"writer","holder":"someone","token":7,"replaced":"","turnover":true,` +
		`"domain":"d","written":{"raw":1,"boot":2},"expiry":{"raw":11,"boot":12},"ttl":10,"pins":["why"],` +
		`"card":{"host":"h","pid":3,"started":{"$date":"2020-09-13T12:26:40Z"},"text":"t"},"revoked":"because","since":{"$date":"2023-11-14T22:13:20.123Z"},` +
		`"past":[{"token":5,"holder":"b","card":{"host":"","pid":0,"text":""},"from":{"$date":"2020-09-13T12:26:40Z"},"to":{"$date":"2023-11-14T22:13:20.123Z"},"why":"expired","note":"n"}]}`
	if err != nil || string(text) != want {
		t.Errorf("the document is\n%s, and not\n%s", text, want)
	}
	if strings.Count(string(text), "jobs/a.b$c") != 2 {
		t.Error("the name is somewhere else, too")
	}
}
