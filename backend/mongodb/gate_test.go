package mongodb

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// held returns a lease that the peer confirms, and the peer.
func held(t *testing.T, hello bson.D) (*claim.Lease, *peer) {
	t.Helper()
	var record any // the last record that was written
	p := newPeer(t, hello, func(name string, body bson.Raw) bson.D {
		into, _ := body.Lookup(name).StringValueOK()
		switch {
		case into != "leasekeeper_leases":
		case name == "insert":
			all, _ := body.Lookup("documents").Array().Values()
			record = all[0]
		case name == "find" && record != nil:
			return cursor(record)
		}
		return nil
	})
	client, err := claim.NewClient(p.openStore(Config{}), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := client.Claim(t.Context(), claim.Request{Name: "jobs/x", ID: backend.ID{1, 2}, Holder: backend.Holder{ID: "a"}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l, p
}

// inTransaction begins a transaction and calls do in it.
func inTransaction(t *testing.T, client *mongo.Client, do func(ctx context.Context)) {
	t.Helper()
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	do(mongo.NewSessionContext(t.Context(), session))
}

// The gate writes to the record of that very tenure, in the caller's transaction, and leaves the op unchanged.
func TestGateTouchesTheRecord(t *testing.T) {
	l, p := held(t, ofASet)
	inTransaction(t, p.client(), func(ctx context.Context) {
		if err := GateClaim(ctx, l); err != nil {
			t.Fatal(err)
		}
	})
	body := p.commands("update")[len(p.commands("update"))-1]
	updates, _ := body.Lookup("updates").Array().Values()
	if len(updates) != 1 {
		t.Fatalf("%v", body)
	}
	id := l.Incarnation()
	if got, want := asJSON(t, updates[0].Document().Lookup("q")), `{"_id":"default/jobs/x","holder":"a","token":8,"incarnation":"`+hex.EncodeToString(id[:])+`"}`; got != want {
		t.Errorf("the filter is %s, and not %s", got, want)
	}
	if got := asJSON(t, updates[0].Document().Lookup("u")); got != `{"$inc":{"gate":1}}` {
		t.Errorf("the update is %s", got)
	}
	if auto, ok := body.Lookup("autocommit").BooleanOK(); auto || !ok {
		t.Errorf("it is in no transaction: %v", body)
	}
	if _, err := body.LookupErr("writeConcern"); err == nil {
		t.Errorf("it has a concern of its own in a transaction: %v", body)
	}
}

func TestGateErrorsHaveTheirKinds(t *testing.T) {
	l, p := held(t, ofASet)
	for _, c := range []struct {
		what   string
		answer bson.D
		kind   error
		repeat bool // WithTransaction repeats the transaction
	}{
		{"lost", bson.D{{Key: "n", Value: int32(0)}}, backend.ErrLost, false},
		{"others write", refused(112, "TransientTransactionError"), backend.ErrContention, true},
		{"no primary", refused(11602, "TransientTransactionError"), backend.ErrUnavailable, true},
		{"not allowed", refused(13), backend.ErrInvalid, false},
		{"no answer", hangUp, backend.ErrUnavailable, true},
	} {
		p.answers(func(name string, _ bson.Raw) bson.D {
			if name == "update" {
				return c.answer
			}
			return nil
		})
		inTransaction(t, p.client(), func(ctx context.Context) {
			err := GateClaim(ctx, l)
			if !errors.Is(err, c.kind) {
				t.Errorf("%s: %v", c.what, err)
			}
			var labeled mongo.LabeledError
			if repeat := errors.As(err, &labeled) && labeled.HasErrorLabel("TransientTransactionError"); repeat != c.repeat {
				t.Errorf("%s: that WithTransaction repeats it is %v", c.what, repeat)
			}
		})
	}
}

// Outside of a transaction a gate would be only a write.
func TestGateNeedsATransaction(t *testing.T) {
	l, p := held(t, ofASet)
	before := len(p.commands("update"))
	session, err := p.client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	for _, ctx := range []context.Context{t.Context(), mongo.NewSessionContext(t.Context(), session)} {
		if err := GateClaim(ctx, l); !errors.Is(err, backend.ErrInvalid) {
			t.Error(err)
		}
	}
	single, _ := held(t, ofNothing)
	if err := GateClaim(t.Context(), single); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("on a single server: %v", err)
	}
	client, err := claim.NewClient(claimtest.NewMemory().Open(), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := client.Claim(t.Context(), claim.Request{Name: "jobs/x", ID: backend.ID{1}, Holder: backend.Holder{ID: "a"}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := GateClaim(t.Context(), other); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a lease of another store: %v", err)
	}
	if after := len(p.commands("update")); after != before {
		t.Errorf("%d updates were sent", after-before)
	}
}

// change returns one event of a change stream.
func change(kind, id string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: kind + id}}}, {Key: "operationType", Value: kind}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}}}
}

func TestListenReportsOwnerChanges(t *testing.T) {
	p := newPeer(t, ofASet, nil)
	s := p.openStore(Config{})
	more := make(chan struct{})
	defer close(more)
	p.answers(func(name string, _ bson.Raw) bson.D {
		switch name {
		case "aggregate":
			return bson.D{{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(5)}, {Key: "ns", Value: "app.leasekeeper_leases"},
				{Key: "firstBatch", Value: bson.A{change("replace", "default/jobs/x"), change("delete", "default/a/b")}}}}}
		case "getMore":
			<-more
		}
		return nil
	})
	var names []string
	ended := make(chan error, 1)
	go func() {
		ended <- s.Listen(context.Background(), func(name string) {
			names = append(names, name)
			if len(names) == 3 {
				_ = s.Close(context.Background())
			}
		})
	}()
	if err := <-ended; !errors.Is(err, backend.ErrClosed) {
		t.Error(err)
	}
	if !slices.Equal(names, []string{"", "jobs/x", "a/b"}) {
		t.Errorf("%q", names)
	}
	pipeline, _ := p.commands("aggregate")[0].Lookup("pipeline").Array().Values()
	if _, err := pipeline[0].Document().LookupErr("$changeStream"); err != nil || len(pipeline) != 2 {
		t.Errorf("%v", pipeline)
	}
	// A renewal changes a document but not its token, and wakes no waiter.
	kinds, _ := pipeline[1].Document().Lookup("$match", "$or").Array().Values()
	reported := 0
	for _, kind := range kinds {
		if what, _ := kind.Document().Lookup("operationType").StringValueOK(); what == "update" {
			reported++
			if exists, ok := kind.Document().Lookup("updateDescription.updatedFields.token", "$exists").BooleanOK(); !exists || !ok {
				t.Errorf("a renewal would wake waiters: %v", kind)
			}
		}
	}
	if reported != 1 {
		t.Errorf("%d kinds of updates are reported, not one: %v", reported, kinds)
	}
}

// Without change streams Listen returns at once, and waiters poll.
func TestListenWithoutStreamsIsUnsupported(t *testing.T) {
	p := newPeer(t, ofNothing, nil)
	s := p.openStore(Config{})
	err := s.Listen(t.Context(), func(string) { t.Error("a hint") })
	if !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
	if n := len(p.commands("aggregate")); n > 0 {
		t.Errorf("it tried %d times", n)
	}
	for _, answer := range []bson.D{refused(40573), hangUp} {
		p := newPeer(t, ofASet, nil)
		s := p.openStore(Config{})
		p.answers(func(name string, _ bson.Raw) bson.D {
			if name == "aggregate" {
				return answer
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := s.Listen(ctx, func(string) { t.Error("a hint") }); !errors.Is(err, backend.ErrUnavailable) {
			t.Error(err)
		}
	}
}
