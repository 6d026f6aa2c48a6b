package ferrettest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// open opens a store in a test's own database, which is closed when the test ends.
func open(t testing.TB, client *mongo.Client, c mongodb.Config) *mongodb.Store {
	t.Helper()
	s, err := mongodb.New(t.Context(), databaseOf(t, client), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s
}

// aRecord returns a record with a holder.
func aRecord(name string, token backend.Token) claim.Record {
	return claim.Record{Name: name, Holder: "someone", Token: token, Op: claim.NewOp(), Incarnation: backend.ID(claim.NewOp()), Domain: "d",
		Written: clock.Instant{Raw: 1, Boot: 2}, Expiry: clock.Instant{Raw: 11, Boot: 12}, TTL: 10}
}

// FerretDB itself is refused to every client: two clients could both win.
func TestFerretDBIsRefused(t *testing.T) {
	p := Start(t)
	direct := connect(t, "mongodb://"+p.backend+"/")
	_, err := mongodb.New(t.Context(), direct.Database("app"), mongodb.Config{})
	if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "FerretDB") {
		t.Error(err)
	}
	names, err := direct.ListDatabaseNames(t.Context(), bson.D{})
	if err != nil || len(names) > 0 {
		t.Errorf("something was made there: %v, %v", names, err)
	}
	behind := connect(t, p.URI())
	if _, err := mongodb.New(t.Context(), databaseOf(t, behind), mongodb.Config{StoreClock: true}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("its clock was accepted: %v", err)
	}
	s := open(t, behind, mongodb.Config{})
	if err := s.Listen(t.Context(), func(string) { t.Error("a hint") }); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("a change stream: %v", err)
	}
	if s.Judges() {
		t.Error("it judges")
	}
}

// The proxy really lets one command through at a time. Without that, two writes from one op would sometimes
// both be done.
func TestProxySerializesCommands(t *testing.T) {
	p := Start(t)
	s := open(t, connect(t, p.URI()), mongodb.Config{})
	var under, most atomic.Int32
	p.Judge(func(string, bson.Raw) Fate {
		if under.Add(1) > 1 {
			most.Store(2)
		}
		time.Sleep(50 * time.Microsecond) // lets another command in, if that is possible
		under.Add(-1)
		return Pass
	})
	first := aRecord("jobs/x", 1)
	if done, err := s.Swap(t.Context(), claim.Swap{Record: first}); !done || err != nil {
		t.Fatal(done, err)
	}
	for round := range 20 {
		winners := make(chan claim.Record, 8)
		var all sync.WaitGroup
		for range cap(winners) {
			all.Go(func() {
				r := aRecord("jobs/x", backend.Token(round+2))
				if done, err := s.Swap(t.Context(), claim.Swap{Old: first.Op, Record: r}); err != nil {
					t.Error(err)
				} else if done {
					winners <- r
				}
			})
		}
		all.Wait()
		if len(winners) != 1 {
			t.Fatalf("%d won", len(winners))
		}
		first = <-winners
	}
	if most.Load() > 0 {
		t.Error("commands come two at a time")
	}
}

// A lost request or answer is not reported as a failure, and a read finds the outcome.
func TestLostRequestsAndAnswersAreFoundByARead(t *testing.T) {
	p := Start(t)
	client := connect(t, p.URI())
	for _, fate := range []Fate{LoseRequest, LoseAnswer} {
		for _, command := range []string{"insert", "update", "delete"} {
			t.Run(fmt.Sprint(fate, command), func(t *testing.T) {
				p.Judge(nil)
				s := open(t, client, mongodb.Config{})
				r := aRecord("jobs/"+command, 1)
				call := func() (bool, error) { return s.Swap(t.Context(), claim.Swap{Record: r}) }
				if command != "insert" {
					if done, err := call(); !done || err != nil {
						t.Fatal(done, err)
					}
				}
				next := aRecord(r.Name, 2)
				switch command {
				case "update":
					call = func() (bool, error) { return s.Swap(t.Context(), claim.Swap{Old: r.Op, Record: next}) }
				case "delete":
					call = func() (bool, error) { return s.Remove(t.Context(), r.Name, r.Op) }
				}
				lost := 0
				p.Judge(func(name string, body bson.Raw) Fate {
					if into, _ := body.Lookup(name).StringValueOK(); name == command && into == "leasekeeper_leases" {
						if lost++; lost == 1 {
							return fate
						}
					}
					return Pass
				})
				done, err := call()
				if done || !errors.Is(err, backend.ErrUnknownOutcome) || errors.Is(err, backend.ErrUnavailable) {
					t.Fatalf("%v, %v", done, err)
				}
				if lost != 1 {
					t.Errorf("it was sent %d times", lost)
				}
				f, err := s.Get(t.Context(), r.Name)
				if err != nil {
					t.Fatal(err)
				}
				happened := map[string]bool{"insert": f.Record.Op == r.Op, "update": f.Record.Op == next.Op, "delete": !f.Record.Exists()}[command]
				if happened != (fate == LoseAnswer) {
					t.Errorf("whether it happened is %v", happened)
				}
			})
		}
	}
	p.Judge(nil)
}

// A keeper survives lost answers: each claim ends as one tenure, with tokens that grow.
func TestClaimsSucceedOverABadNetwork(t *testing.T) {
	p := Start(t)
	s := open(t, connect(t, p.URI()), mongodb.Config{})
	client, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	p.Judge(func(name string, body bson.Raw) Fate {
		if into, _ := body.Lookup(name).StringValueOK(); into != "leasekeeper_leases" {
			return Pass
		}
		switch n++; n % 5 {
		case 2:
			return LoseAnswer
		case 4:
			return LoseRequest
		}
		return Pass
	})
	defer p.Judge(nil)
	var last backend.Token
	for i := range 12 {
		request := claim.Request{Name: "jobs/x", ID: backend.ID(claim.NewOp()), Holder: backend.Holder{ID: "a"}, TTL: time.Minute}
		var l *claim.Lease
		for range 10 {
			if l, err = client.Claim(t.Context(), request); err == nil || !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrUnavailable) {
				break
			}
		}
		if err != nil {
			t.Fatalf("claim %d: %v", i, err)
		}
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		for range 10 {
			if err = client.Release(t.Context(), l); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("release %d: %v", i, err)
		}
	}
}

// A store works in the caller's database whatever the caller has set for its own documents.
func TestSettingsOfTheCallerDoNotAffectTheStore(t *testing.T) {
	p := Start(t)
	strange := options.Client().ApplyURI(p.URI() + "?w=0&readPreference=secondary&readConcernLevel=available").
		SetBSONOptions(&options.BSONOptions{UseJSONStructTags: true, OmitEmpty: true, ObjectIDAsHexString: true}).SetRegistry(bson.NewRegistry())
	client, err := mongo.Connect(strange)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	s := open(t, client, mongodb.Config{})
	r := aRecord("jobs/x", 1)
	r.Pins = []string{"p"}
	if done, err := s.Swap(t.Context(), claim.Swap{Record: r}); !done || err != nil {
		t.Fatal(done, err)
	}
	f, err := open(t, connect(t, p.URI()), mongodb.Config{}).Get(t.Context(), "jobs/x")
	if err != nil || f.Record.Op != r.Op || f.Record.Expiry != r.Expiry || len(f.Record.Pins) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}
