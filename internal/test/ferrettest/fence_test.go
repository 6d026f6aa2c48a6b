package ferrettest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/mongofence"
)

// jobs returns a field of the document "nightly", which has these fields, in a collection of its own.
func jobs(t *testing.T, client *mongo.Client, fields ...bson.E) mongofence.Field {
	t.Helper()
	c := databaseOf(t, client).Collection("jobs")
	if err := c.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: "nightly"}}, fields...)); err != nil {
		t.Fatal(err)
	}
	return mongofence.Field{Collection: c}
}

func set(state string) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: state}}}}
}

// is returns the fields of the document "nightly", without its _id.
func is(t *testing.T, f mongofence.Field) string {
	t.Helper()
	var d bson.D
	if err := f.Collection.FindOne(t.Context(), bson.D{{Key: "_id", Value: "nightly"}}).Decode(&d); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(d, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	text, err := bson.MarshalExtJSON(d[1:], false, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func wantStale(t *testing.T, err error, token, highest fence.Token) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) || stale.Token != token || stale.Highest != highest {
		t.Errorf("%v; want that %d is stale after %d", err, token, highest)
	}
}

func TestFieldOnFerretDB(t *testing.T) { testField(t, connect(t, Start(t).URI())) }
func TestFieldOnMongoDB(t *testing.T)  { testField(t, connect(t, mongod(t))) }

func testField(t *testing.T, client *mongo.Client) {
	t.Run("order", func(t *testing.T) {
		f, ctx := jobs(t, client), t.Context()
		for _, c := range []struct {
			token   fence.Token
			state   string // empty: only advance
			highest fence.Token
		}{{33, "a", 33}, {33, "b", 33}, {34, "c", 34}, {33, "late", 34}, {36, "", 36}, {35, "late", 36}, {34, "", 36}, {36, "d", 36}, {math.MaxInt64, "e", math.MaxInt64}, {math.MaxInt64 - 1, "late", math.MaxInt64}} {
			var err error
			if c.state == "" {
				err = f.Advance(ctx, "nightly", c.token)
			} else {
				err = f.Update(ctx, "nightly", c.token, set(c.state))
			}
			if c.token < c.highest {
				wantStale(t, err, c.token, c.highest)
			} else if err != nil {
				t.Errorf("%d: %v", c.token, err)
			}
			if got := is(t, f); strings.Contains(got, "late") || !strings.Contains(got, fmt.Sprint(`"token":`, uint64(c.highest))) {
				t.Errorf("after %d it is %s", c.token, got)
			}
		}
	})
	t.Run("what there was", func(t *testing.T) {
		for _, c := range []struct {
			token any
			kind  error
		}{{nil, nil}, {int32(0), nil}, {int64(5), nil}, {int32(5), nil}, {int64(6), fence.ErrStale}, {"5", mongofence.ErrCorrupt}, {-1, mongofence.ErrCorrupt},
			{5.0, mongofence.ErrCorrupt}, {1.5, mongofence.ErrCorrupt}, {bson.A{int32(1), int32(99)}, mongofence.ErrCorrupt}, {bson.A{}, mongofence.ErrCorrupt},
			{bson.D{{Key: "n", Value: 1}}, mongofence.ErrCorrupt}, {true, mongofence.ErrCorrupt}} {
			f := jobs(t, client, bson.E{Key: "token", Value: c.token})
			before := is(t, f)
			err := f.Update(t.Context(), "nightly", 5, set("x"))
			if !errors.Is(err, c.kind) || err == nil != (c.kind == nil) {
				t.Errorf("after %v: %v", c.token, err)
			}
			if got := is(t, f); c.kind != nil && got != before || c.kind == nil && got != `{"state":"x","token":5}` {
				t.Errorf("after %v it is %s", c.token, got)
			}
		}
	})
	t.Run("input", func(t *testing.T) {
		f := jobs(t, client)
		if err := f.Update(t.Context(), "weekly", 5, set("x")); !errors.Is(err, mongofence.ErrNotFound) {
			t.Error(err)
		}
		in := func(op string, e bson.E) bson.D { return bson.D{{Key: op, Value: bson.D{e}}} }
		for _, update := range []bson.D{nil, {}, {{Key: "state", Value: "x"}}, {{Key: "$set", Value: "x"}}, in("$set", bson.E{Key: "token", Value: 1}),
			in("$max", bson.E{Key: "token", Value: 99}), in("$unset", bson.E{Key: "token.x", Value: ""}), in("$rename", bson.E{Key: "state", Value: "token"})} {
			if err := f.Update(t.Context(), "nightly", 5, update); !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("%v: %v", update, err)
			}
		}
		for _, token := range []fence.Token{0, math.MaxInt64 + 1} {
			if err := f.Advance(t.Context(), "nightly", token); !errors.Is(err, fence.ErrInvalid) {
				t.Error(err)
			}
		}
		for _, bad := range []mongofence.Field{{}, {Collection: f.Collection, Name: "a.b"}, {Collection: f.Collection, Name: "$a"}, {Collection: f.Collection, Name: "_id"}} {
			if err := bad.Advance(t.Context(), "nightly", 5); !errors.Is(err, fence.ErrInvalid) {
				t.Error(err)
			}
		}
		if got := is(t, f); got != `{}` {
			t.Error(got)
		}
		f.Name = "fencing"
		err := f.Update(t.Context(), "nightly", 5, bson.D{{Key: "$max", Value: bson.D{{Key: "runs", Value: 3}}}, {Key: "$set", Value: bson.D{{Key: "token", Value: "mine"}}}})
		if got := is(t, f); err != nil || got != `{"fencing":5,"runs":3,"token":"mine"}` {
			t.Error(got, err)
		}
	})
	t.Run("race", func(t *testing.T) {
		f := jobs(t, client, bson.E{Key: "history", Value: bson.A{}})
		const holders = 6
		var group sync.WaitGroup
		for token := fence.Token(1); token <= holders; token++ {
			group.Go(func() {
				for range 5 {
					push := bson.D{{Key: "$push", Value: bson.D{{Key: "history", Value: int64(token)}}}}
					if err := f.Update(t.Context(), "nightly", token, push); err != nil && !errors.Is(err, fence.ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		var d struct{ History []int64 }
		if err := f.Collection.FindOne(t.Context(), bson.D{}).Decode(&d); err != nil || !slices.IsSorted(d.History) || len(d.History) < 5 || d.History[len(d.History)-5] != holders {
			t.Errorf("the history is %v, %v", d.History, err)
		}
	})
}

func TestMarksOnFerretDB(t *testing.T) { testMarks(t, connect(t, Start(t).URI())) }
func TestMarksOnMongoDB(t *testing.T)  { testMarks(t, connect(t, mongod(t))) }

func testMarks(t *testing.T, client *mongo.Client) {
	ctx, c := t.Context(), databaseOf(t, client).Collection("marks")
	marks := mongofence.Marks{Collection: c}
	highest := func(name string, want fence.Token) {
		t.Helper()
		if got, err := marks.Highest(ctx, name); got != want || err != nil {
			t.Errorf("the mark of %s is %d, %v; want %d", name, got, err, want)
		}
	}
	highest("a", 0)
	for _, step := range []struct{ t, is fence.Token }{{5, 5}, {4, 5}, {5, 5}, {9, 9}, {1, 9}, {math.MaxInt64, math.MaxInt64}} {
		if got, err := marks.Raise(ctx, "a", step.t); got != step.is || err != nil {
			t.Errorf("Raise(%d) is %d, %v", step.t, got, err)
		}
		highest("a", step.is)
	}
	highest("b", 0)
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			if got, err := marks.Raise(ctx, "b", fence.Token(i+1)); err != nil || got < fence.Token(i+1) {
				t.Errorf("Raise(%d) is %d, %v", i+1, got, err)
			}
		})
	}
	group.Wait()
	highest("b", 12)

	guard := fence.NewGuard(fence.Config{Marks: marks})
	if err := guard.Check(ctx, "c", 5); err != nil {
		t.Error(err)
	}
	restarted := fence.NewGuard(fence.Config{Marks: marks})
	wantStale(t, restarted.Check(ctx, "c", 4), 4, 5)

	if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: "text"}, {Key: "token", Value: "5"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := marks.Raise(ctx, "text", 5); !errors.Is(err, mongofence.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := marks.Highest(ctx, "text"); !errors.Is(err, mongofence.ErrCorrupt) {
		t.Error(err)
	}
	for _, bad := range []struct {
		name string
		t    fence.Token
	}{{"", 5}, {strings.Repeat("x", fence.MaxName+1), 5}, {"a", 0}, {"a", math.MaxInt64 + 1}} {
		if _, err := marks.Raise(ctx, bad.name, bad.t); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%.10s, %d: %v", bad.name, bad.t, err)
		}
	}
	if _, err := (mongofence.Marks{}).Raise(ctx, "a", 5); !errors.Is(err, fence.ErrInvalid) {
		t.Error(err)
	}
	if err := marks.Guard(ctx, "a", 5); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a guard outside of a transaction: %v", err)
	}
	if _, err := transaction(ctx, client, func(ctx context.Context) error { return marks.Guard(ctx, "d", 7) }); err == nil {
		highest("d", 7)
	} else {
		highest("d", 0) // there are no transactions, so nothing was done
	}
}

// transaction runs do in a transaction, without repeating it.
func transaction(ctx context.Context, client *mongo.Client, do func(ctx context.Context) error) (committed bool, err error) {
	session, err := client.StartSession()
	if err != nil {
		return false, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	if err := session.StartTransaction(); err != nil {
		return false, err
	}
	inner := mongo.NewSessionContext(ctx, session)
	if err := do(inner); err != nil {
		_ = session.AbortTransaction(inner)
		return false, err
	}
	err = session.CommitTransaction(inner)
	return err == nil, err
}
