package mongofence

import (
	"errors"
	"math"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasekeeper/leasekeeper/fence"
)

// The tests of this package that need a server are in internal/test/ferrettest.

func TestTokensThatDoNotFitBSONAreRefused(t *testing.T) {
	for token, ok := range map[fence.Token]bool{0: false, 1: true, math.MaxInt64: true, math.MaxInt64 + 1: false, math.MaxUint64: false} {
		n, err := number(token)
		if ok != (err == nil) || ok && fence.Token(n) != token || !ok && !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%d: %d, %v", token, n, err)
		}
	}
}

// The filter holds the condition, and the update holds the token besides its other changes.
func TestUpdateCarriesTheConditionAndTheToken(t *testing.T) {
	text := func(d bson.D) string {
		t.Helper()
		b, err := bson.MarshalExtJSON(d, false, false)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got, want := text(passes("nightly", "token", 34)), `{"_id":{"$eq":"nightly"},"token":{"$not":{"$type":"array"}},"$or":[{"token":{"$type":["int","long"],"$gte":0,"$lte":34}},{"token":null}]}`; got != want {
		t.Errorf("the filter is %s, and not %s", got, want)
	}
	in := func(op string, fields ...bson.E) bson.E { return bson.E{Key: op, Value: bson.D(fields)} }
	for _, c := range []struct {
		update bson.D
		want   string
	}{
		{nil, `{"$max":{"token":34}}`},
		{bson.D{in("$set", bson.E{Key: "state", Value: "x"})}, `{"$set":{"state":"x"},"$max":{"token":34}}`},
		{bson.D{in("$max", bson.E{Key: "runs", Value: 3}), in("$unset", bson.E{Key: "tokens", Value: ""})}, `{"$unset":{"tokens":""},"$max":{"runs":3,"token":34}}`},
		{bson.D{{Key: "$set", Value: bson.M{"a.token": 1}}}, `{"$set":{"a.token":1},"$max":{"token":34}}`},
	} {
		got, err := withToken(c.update, "token", 34)
		if err != nil || text(got) != c.want {
			t.Errorf("the update is %s, and not %s: %v", text(got), c.want, err)
		}
	}
	if _, err := withToken(bson.D{{Key: "$set", Value: make(chan int)}}, "token", 34); !errors.Is(err, fence.ErrInvalid) {
		t.Error(err)
	}
}

func TestStoredValuesThatAreNoTokensAreCorrupt(t *testing.T) {
	for _, c := range []struct {
		stored any
		want   fence.Token
		ok     bool
	}{{nil, 0, true}, {int32(0), 0, true}, {int32(7), 7, true}, {int64(math.MaxInt64), math.MaxInt64, true}, {int32(-1), 0, false}, {int64(-1), 0, false}, {7.0, 0, false}, {"7", 0, false}, {bson.A{7}, 0, false}} {
		raw, err := bson.Marshal(bson.D{{Key: "token", Value: c.stored}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := mark(bson.Raw(raw).Lookup("token"))
		if got != c.want || c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v: %d, %v", c.stored, got, err)
		}
	}
	if got, err := mark(bson.Raw{5, 0, 0, 0, 0}.Lookup("token")); got != 0 || err != nil {
		t.Errorf("no field: %d, %v", got, err)
	}
	if _, err := (Marks{}).Highest(t.Context(), strings.Repeat("x", 2000)); !errors.Is(err, fence.ErrInvalid) {
		t.Error(err)
	}
}
