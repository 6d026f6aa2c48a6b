package ferrettest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/mongofence"
)

// keeper returns a keeper with leases in a test's own database.
func keeper(t *testing.T, client *mongo.Client) *leasekeeper.Keeper {
	t.Helper()
	s, err := mongodb.New(t.Context(), databaseOf(t, client), mongodb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := claimed.New(s)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return k
}

// A server without transactions has no gate, and the error says what to do instead.
func TestGateOnFerretDB(t *testing.T) {
	client := connect(t, Start(t).URI())
	l, err := keeper(t, client).Acquire(t.Context(), "jobs/x", leasekeeper.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	_, err = transaction(t.Context(), client, func(ctx context.Context) error { return mongodb.Gate(ctx, l) })
	var unsupported *backend.UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.Instead == "" {
		t.Error(err)
	}
}

// gatedTenure is a lease in the form that its gate takes.
type gatedTenure struct {
	gate  func(ctx context.Context) error
	token backend.Token
}

// gated writes its author, in a transaction that begins with the gate, and pauses in between.
func gated(ctx context.Context, client *mongo.Client, data *mongo.Collection, by gatedTenure, pause func()) (bool, error) {
	return transaction(ctx, client, func(ctx context.Context) error {
		if err := by.gate(ctx); err != nil {
			return err
		}
		pause()
		_, err := data.UpdateOne(ctx, bson.D{{Key: "_id", Value: "report"}}, bson.D{{Key: "$push", Value: bson.D{{Key: "by", Value: int64(by.token)}}}})
		return err
	})
}

func nothing() {}

// takeByForce ends the present tenure, if any, and begins another.
func takeByForce(ctx context.Context, c *claim.Client) (gatedTenure, error) {
	if err := c.Revoke(ctx, "jobs/x", 0, "test", true); err != nil {
		return gatedTenure{}, err
	}
	l, err := c.Claim(ctx, claim.Request{Name: "jobs/x", ID: backend.ID(claim.NewOp()), Holder: backend.Holder{ID: "other"}, TTL: time.Minute})
	if err != nil {
		return gatedTenure{}, err
	}
	return gatedTenure{func(ctx context.Context) error { return mongodb.GateClaim(ctx, l) }, l.Token()}, nil
}

func TestGateOnMongoDB(t *testing.T) {
	client := connect(t, mongod(t))
	k := keeper(t, client)
	other, err := claim.NewClient(open(t, client, mongodb.Config{}), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data := databaseOf(t, client).Collection("data")
	if _, err := data.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "report"}, {Key: "by", Value: bson.A{}}}); err != nil {
		t.Fatal(err)
	}
	l, err := k.Acquire(t.Context(), "jobs/x", leasekeeper.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	first := gatedTenure{func(ctx context.Context) error { return mongodb.Gate(ctx, l) }, l.Token()}
	if committed, err := gated(t.Context(), client, data, first, nothing); !committed {
		t.Fatalf("held, and not committed: %v", err)
	}
	// The name is taken by force while the transaction is open. The takeover waits or fails, or the transaction
	// fails, but they never both succeed.
	var next gatedTenure
	taken := errors.New("not tried")
	committed, _ := gated(t.Context(), client, data, first, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		next, taken = takeByForce(ctx, other)
	})
	if committed && taken == nil {
		t.Errorf("the name was taken while a gated transaction was open, which then committed")
	}
	if taken != nil {
		if next, err = takeByForce(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	if committed, err := gated(t.Context(), client, data, first, nothing); committed || !errors.Is(err, backend.ErrLost) {
		t.Errorf("the former holder: %v, %v", committed, err)
	}
	if committed, err := gated(t.Context(), client, data, next, nothing); !committed {
		t.Errorf("the new holder: %v", err)
	}
	var d struct{ By []int64 }
	if err := data.FindOne(t.Context(), bson.D{}).Decode(&d); err != nil || !slices.IsSorted(d.By) || len(d.By) < 2 {
		t.Errorf("the order of writes is %v, %v", d.By, err)
	}
}

// Of two guarded transactions for one name that are open at the same time one fails. An older one never commits
// after a newer one.
func TestGuardOnMongoDB(t *testing.T) {
	client := connect(t, mongod(t))
	marks := mongofence.Marks{Collection: databaseOf(t, client).Collection("marks")}
	guard := func(token fence.Token, pause func()) (bool, error) {
		return transaction(t.Context(), client, func(ctx context.Context) error {
			if err := marks.Guard(ctx, "report", token); err != nil {
				return err
			}
			pause()
			return nil
		})
	}
	if committed, err := guard(33, nothing); !committed {
		t.Fatal(err)
	}
	for _, old := range []fence.Token{33, 34} { // with the same token as the mark, and with one that raises it
		newer := old + 1
		var inner bool
		outer, _ := guard(old, func() { inner, _ = guard(newer, nothing) })
		if outer && inner {
			t.Errorf("%d committed after %d", old, newer)
		}
		if !inner {
			if committed, err := guard(newer, nothing); !committed {
				t.Fatal(err)
			}
		}
		committed, err := guard(old, nothing)
		if committed {
			t.Errorf("%d committed after %d", old, newer)
		}
		wantStale(t, err, old, newer)
	}
}
