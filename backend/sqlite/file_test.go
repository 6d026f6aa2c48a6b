package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// A store that cannot tell whether a write happened says so.
func TestUnclearFailureOfAWriteIsAnUnknownOutcome(t *testing.T) {
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, errors.New("of another driver")} {
		if f := failureOf(err, true); f.Kind != backend.ErrUnknownOutcome || f.Again {
			t.Errorf("%v of a write: %+v", err, f)
		}
		if f := failureOf(err, false); f.Kind != backend.ErrUnavailable || f.Again {
			t.Errorf("%v of a read: %+v", err, f)
		}
	}
	db := raw(t, newPath(t), durable)
	s, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	_, err = s.Get(t.Context(), "x")
	if !errors.Is(err, backend.ErrClosed) {
		t.Errorf("in a database that was closed: %v", err)
	}
	if f := failureOf(nil, true); f != (*sqlstore.Failure)(nil) {
		t.Errorf("no error is %v", f)
	}
}
