package mongodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	xdriver "go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// testRecord returns a record to be written.
func testRecord(name string) claim.Record {
	return claim.Record{Name: name, Holder: "$$ROOT", Token: 3, Op: claim.NewOp(), Incarnation: backend.ID{1}, Domain: "d",
		Written: clock.Instant{Raw: 10, Boot: 10}, Expiry: clock.Instant{Raw: 40, Boot: 40}, TTL: 30 * time.Second}
}

// write swaps an existing record.
func write(s *Store) (bool, error) {
	return s.Swap(context.Background(), claim.Swap{Old: claim.NewOp(), Record: testRecord("jobs/x")})
}

// Every write waits for the journals of a majority, is sent once, and joins no transaction of the caller's.
func TestWritesAreDurable(t *testing.T) {
	p := newPeer(t, ofASet, nil)
	s := p.openStore(Config{})
	session, err := p.client(options.Client().SetWriteConcern(writeconcern.Unacknowledged()).SetReadPreference(readpref.Secondary())).StartSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.StartTransaction(options.Transaction().SetWriteConcern(writeconcern.W1())); err != nil {
		t.Fatal(err)
	}
	ctx := mongo.NewSessionContext(t.Context(), session)
	op := claim.NewOp()
	for name, call := range map[string]func() error{
		"insert": func() error { _, err := s.Swap(ctx, claim.Swap{Record: testRecord("a")}); return err },
		"update": func() error { _, err := s.Swap(ctx, claim.Swap{Old: op, Record: testRecord("a")}); return err },
		"delete": func() error { _, err := s.Remove(ctx, "a", op); return err },
		"many": func() error {
			_, err := s.SwapAll(ctx, []claim.Swap{{Old: op, Record: testRecord("a")}, {Record: testRecord("b")}})
			return err
		},
		"clock":   func() error { return s.Acknowledge(ctx, "d", clock.Instant{}) },
		"observe": func() error { _, err := s.Observe(ctx, "a", "d", op, clock.Instant{}); return err },
		"floor":   func() error { _, err := s.RaiseFloor(ctx, 9); return err },
	} {
		if err := call(); err != nil && name != "floor" { // because the peer has no namespace to return
			t.Errorf("%s: %v", name, err)
		}
	}
	total := 0
	for _, name := range []string{"insert", "update", "delete", "findAndModify"} {
		for _, body := range p.commands(name) {
			total++
			if w, _ := body.Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
				t.Errorf("%s without a majority: %v", name, body)
			}
			if j, _ := body.Lookup("writeConcern", "j").BooleanOK(); !j {
				t.Errorf("%s without journals: %v", name, body)
			}
			for _, key := range []string{"txnNumber", "autocommit", "startTransaction"} {
				if _, err := body.LookupErr(key); err == nil {
					t.Errorf("%s has %s: %v", name, key, body)
				}
			}
			if _, err := body.LookupErr("maxTimeMS"); err != nil {
				t.Errorf("%s has no limit of time: %v", name, body)
			}
		}
	}
	if total != 9 {
		t.Errorf("%d commands were heard", total)
	}
}

// Reads for decisions are linearizable, of the primary, by a filter for one document, with a time limit.
func TestReadsAreLinearizable(t *testing.T) {
	for _, c := range []struct {
		hello bson.D
		level string
	}{{ofASet, "linearizable"}, {ofARouter, "linearizable"}, {ofNothing, "local"}} {
		p := newPeer(t, c.hello, nil)
		s := p.openStore(Config{})
		before := len(p.commands("find"))
		f, err := s.Get(t.Context(), "jobs/x")
		if err != nil || f.Record.Exists() || f.Floor != 7 {
			t.Fatal(f, err)
		}
		if _, _, err := s.Acknowledged(t.Context(), "d"); err != nil {
			t.Fatal(err)
		}
		reads := slices.DeleteFunc(p.commands("find")[before:], func(body bson.Raw) bool {
			from, _ := body.Lookup("find").StringValueOK()
			return from == "leasekeeper_tickets" // no decision depends on them
		})
		if len(reads) != 3 {
			t.Fatalf("%d reads", len(reads))
		}
		for _, body := range reads {
			level, _ := body.Lookup("readConcern", "level").StringValueOK()
			_, single := body.Lookup("filter", "_id").StringValueOK()
			_, err := body.LookupErr("maxTimeMS")
			if level != c.level || !single || err != nil {
				t.Errorf("%v: %v", c.hello, body)
			}
			if _, err := body.LookupErr("txnNumber"); err == nil {
				t.Errorf("a read has %v", body)
			}
		}
	}
}

// Each answer to a write has its meaning.
func TestAnswersToAWriteHaveTheirKinds(t *testing.T) {
	one := bson.E{Key: "n", Value: int32(1)}
	none := bson.E{Key: "n", Value: int32(0)}
	concern := func(code int32) bson.E {
		return bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "errmsg", Value: "waiting for replication timed out"}}}
	}
	statement := func(code int32) bson.E {
		return bson.E{Key: "writeErrors", Value: bson.A{bson.D{{Key: "index", Value: int32(0)}, {Key: "code", Value: code}, {Key: "errmsg", Value: "no"}}}}
	}
	for _, c := range []struct {
		what   string
		answer bson.D
		done   bool
		kind   error
	}{
		{"done", bson.D{one}, true, nil},
		{"not matched", bson.D{none}, false, nil},
		{"a duplicate", bson.D{none, statement(11000)}, false, nil},
		{"done, and not by a majority in time", bson.D{one, concern(64)}, false, backend.ErrUnknownOutcome},
		{"done, and the primary stepped down", bson.D{one, concern(189)}, false, backend.ErrUnknownOutcome},
		{"not matched, and not by a majority", bson.D{none, concern(64)}, false, nil},
		{"a validator says no", bson.D{none, statement(121)}, false, backend.ErrInvalid},
		{"a conflict", bson.D{none, statement(112)}, false, backend.ErrUnavailable},
		{"interrupted in the statement", bson.D{none, statement(11602)}, false, backend.ErrUnknownOutcome},
		{"not the primary", refused(10107), false, backend.ErrUnavailable},
		{"not the primary any more, and none to be found", refused(13435), false, backend.ErrUnavailable},
		{"still starting", refused(13436), false, backend.ErrUnavailable},
		{"interrupted by a step down", refused(11602), false, backend.ErrUnknownOutcome},
		{"stepped down", refused(189), false, backend.ErrUnknownOutcome},
		{"interrupted, and surely nothing was written", refused(11602, xdriver.NoWritesPerformed), false, backend.ErrUnavailable},
		{"shutting down", refused(91), false, backend.ErrUnknownOutcome},
		{"too late", refused(50), false, backend.ErrUnknownOutcome},
		{"a router lost the shard", refused(6), false, backend.ErrUnknownOutcome},
		{"not allowed", refused(13), false, backend.ErrInvalid},
		{"not understood", refused(9), false, backend.ErrInvalid},
		{"an unknown code", refused(31415), false, backend.ErrUnknownOutcome},
		{"an answer of another form", bson.D{{Key: "n", Value: "one"}}, false, backend.ErrUnknownOutcome},
		{"no answer", hangUp, false, backend.ErrUnknownOutcome},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var times atomic.Int32
			p := newPeer(t, ofASet, func(name string, _ bson.Raw) bson.D {
				if name != "update" {
					return nil
				}
				times.Add(1)
				return c.answer
			})
			done, err := write(p.openStore(Config{}))
			if done != c.done || !errors.Is(err, c.kind) || (err == nil) != (c.kind == nil) {
				t.Errorf("%v, %v; want %v, %v", done, err, c.done, c.kind)
			}
			for _, other := range []error{backend.ErrUnknownOutcome, backend.ErrUnavailable, backend.ErrInvalid} {
				if other != c.kind && errors.Is(err, other) {
					t.Errorf("it is %v as well: %v", other, err)
				}
			}
			if n := times.Load(); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

// A read that fails has changed nothing, whatever the code. The driver repeats it while there is time.
func TestFailedReadsAreUnavailable(t *testing.T) {
	t.Parallel()
	for code, kind := range map[int32]error{13: backend.ErrInvalid, 11602: backend.ErrUnavailable, 50: backend.ErrUnavailable, 31415: backend.ErrUnavailable} {
		p := newPeer(t, ofASet, nil)
		s := p.openStore(Config{})
		p.answers(func(name string, _ bson.Raw) bson.D {
			if name == "find" {
				return refused(code)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := s.Get(ctx, "x"); !errors.Is(err, kind) || errors.Is(err, backend.ErrUnknownOutcome) {
			t.Errorf("%d: %v", code, err)
		}
		if _, err := s.List(ctx, "", "", 1); !errors.Is(err, kind) && !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// A command that was certainly not sent was certainly not done. The rule depends on the driver's errors, so
// this test asks the driver itself.
func TestUnsentIsUnavailable(t *testing.T) {
	t.Parallel()
	wants := func(t *testing.T, s *Store, ctx context.Context) {
		t.Helper()
		done, err := s.Swap(ctx, claim.Swap{Old: claim.NewOp(), Record: testRecord("jobs/x")})
		if done || !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome) {
			t.Errorf("%v, %v", done, err)
		}
	}
	t.Run("no server listens", func(t *testing.T) {
		p := newPeer(t, ofASet, nil)
		s := p.openStore(Config{})
		_ = p.listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		// The driver must first find its idle connections dead: until then a command is sent but never arrives.
		for range 20 {
			if _, err := write(s); errors.Is(err, backend.ErrUnavailable) {
				break
			}
		}
		wants(t, s, t.Context())
	})
	t.Run("the handshake fails", func(t *testing.T) {
		dead := false
		p := newPeer(t, ofASet, namespaceOf(byWriter))
		dialed := p.client(options.Client().SetDialer(dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			if dead {
				return nil, errors.New("refused by the test")
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		})).SetMaxPoolSize(1).SetHeartbeatInterval(time.Hour))
		s, err := New(t.Context(), dialed.Database("app"), Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		p.answers(func(name string, _ bson.Raw) bson.D {
			if name == "update" {
				return hangUp
			}
			return nil
		})
		dead = true
		if _, err := write(s); !errors.Is(err, backend.ErrUnknownOutcome) {
			t.Errorf("a connection that breaks under a write: %v", err)
		}
		wants(t, s, t.Context())
	})
	t.Run("no time is left", func(t *testing.T) {
		s := newPeer(t, ofASet, nil).openStore(Config{})
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Microsecond))
		defer cancel()
		wants(t, s, ctx)
	})
	t.Run("no connection is free", func(t *testing.T) {
		release := make(chan struct{})
		p := newPeer(t, ofASet, namespaceOf(byWriter))
		s, err := New(t.Context(), p.client(options.Client().SetMaxPoolSize(1)).Database("app"), Config{})
		if err != nil {
			t.Fatal(err)
		}
		began := make(chan struct{}, 1)
		p.answers(func(name string, _ bson.Raw) bson.D {
			if name == "update" {
				began <- struct{}{}
				<-release
			}
			return nil
		})
		first := make(chan error, 1)
		go func() { _, err := write(s); first <- err }()
		<-began
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wants(t, s, ctx)
		close(release)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

// A write that its context, or Close, interrupts may have happened.
func TestInterruptedWriteHasAnUnknownOutcome(t *testing.T) {
	for _, how := range []string{"cancelled", "deadline", "closed"} {
		t.Run(how, func(t *testing.T) {
			began, release := make(chan struct{}, 1), make(chan struct{})
			p := newPeer(t, ofASet, func(name string, _ bson.Raw) bson.D {
				if name == "update" {
					began <- struct{}{}
					<-release
				}
				return nil
			})
			defer close(release)
			s := p.openStore(Config{})
			ctx, cancel := context.WithCancel(t.Context())
			if how == "deadline" {
				ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			}
			defer cancel()
			var err error
			failed := make(chan error, 1)
			go func() {
				_, err := s.Swap(ctx, claim.Swap{Old: claim.NewOp(), Record: testRecord("jobs/x")})
				failed <- err
			}()
			<-began
			switch how {
			case "cancelled":
				cancel()
			case "closed":
				_ = s.Close(t.Context())
			}
			select {
			case err = <-failed:
			case <-time.After(patience / 2):
				t.Fatal("it goes on")
			}
			if !errors.Is(err, backend.ErrUnknownOutcome) {
				t.Errorf("%v", err)
			} else if how == "closed" != errors.Is(err, backend.ErrClosed) {
				t.Errorf("closed or not: %v", err)
			}
		})
	}
}

func TestErrorCodesHaveOneKind(t *testing.T) {
	seen := make(map[int]string)
	for what, codes := range map[string][]int{"not now": notNow, "never": notDone} {
		for _, code := range codes {
			if seen[code] != "" {
				t.Errorf("%d is %s and %s", code, seen[code], what)
			}
			seen[code] = what
		}
	}
	for _, code := range []int{50, 64, 79, 89, 91, 100, 189, 262, 9001, 11600, 11602} {
		if kindOfCode(code) != backend.ErrUnknownOutcome {
			t.Error(fmt.Sprint(code, " can come after the write"))
		}
	}
}
