package keyspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// countingRoom is a Room of limited size.
type countingRoom struct{ most, taken int }

func (c *countingRoom) Take(n int) error {
	if c.taken+n > c.most {
		return ErrNoRoom
	}
	c.taken += n
	return nil
}

func (c *countingRoom) Give(n int) { c.taken -= n }

// A watcher that catches up receives large events in one response, as long as there is room. The room is given back.
func TestCatchUpJoinsPortionsWithinItsRoom(t *testing.T) {
	h := newFixture(t)
	value := []byte(strings.Repeat("x", portionBytes/2-eventOverhead))
	for i := range 10 {
		h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: fmt.Append(nil, i%10), Value: value}) })
	}
	hub := NewHub(h.store)
	for _, c := range []struct {
		room      int
		fragment  bool
		responses string // the number of events in each
	}{
		{0, false, "[2 2 2 2 2]"},
		{portionBytes, false, "[4 4 2]"},
		{100 * portionBytes, false, "[10]"},
		{100 * portionBytes, true, "[2+ 2+ 2+ 2+ 2]"},
	} {
		room := &countingRoom{most: c.room}
		st := hub.NewStream(StreamLimits{Room: room})
		if _, err := st.Watch(WatchRequest{Key: []byte("0"), End: []byte{0}, StartRevision: 2, Fragment: c.fragment}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for events := 0; events < 10; {
			r, err := st.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if events += len(r.Events); len(r.Events) > 0 {
				got = append(got, fmt.Sprint(len(r.Events))+map[bool]string{true: "+"}[r.Fragment])
			}
			if room.taken > c.room {
				t.Errorf("it has taken %d of %d", room.taken, c.room)
			}
		}
		if fmt.Sprint(got) != c.responses {
			t.Errorf("with room for %d: %v, want %s", c.room, got, c.responses)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := st.Next(ctx); !errors.Is(err, ctx.Err()) || room.taken != 0 {
			t.Errorf("the next call returned %v, and %d are still taken", err, room.taken)
		}
		st.Close()
	}
}
