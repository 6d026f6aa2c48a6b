package backend_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestMarkReadsBackFromItsText(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 1, time.FixedZone("", 3600))
	for _, m := range []backend.Mark{
		{},
		{Tick: backend.TickNumber(0)},
		{Tick: backend.TickNumber(-7), Token: 1<<63 - 1},
		{Tick: backend.TickAt(noon), Token: 12},
	} {
		back, err := backend.ParseMark(m.Text())
		if err != nil || back != m {
			t.Errorf("ParseMark(%q) = %v, %v, want %v", m.Text(), back, err, m)
		}
	}
	if got := backend.TickAt(noon).String(); got != "2026-03-01T11:00:00.000000001Z" {
		t.Errorf("the tick shows as %s", got)
	}
}

func TestDamagedMarkIsCorrupt(t *testing.T) {
	for _, text := range []string{"5", "x 5", "5 x", "5 ", "-1 5", "5 2026-03-01", " 5", "5 5 5"} {
		if m, err := backend.ParseMark(text); !errors.Is(err, backend.ErrCorrupt) {
			t.Errorf("ParseMark(%q) = %v, %v", text, m, err)
		}
	}
}

func TestMarkNeverFallsAndKeepsItsKind(t *testing.T) {
	m, err := backend.Mark{}.Raised(backend.TickNumber(5), 1)
	if err != nil || m != (backend.Mark{Tick: backend.TickNumber(5), Token: 1}) {
		t.Fatalf("the first mark is %v, %v", m, err)
	}
	for _, n := range []int64{4, 5} {
		if same, err := m.Raised(backend.TickNumber(n), 2); err != nil || same != m {
			t.Errorf("raised to %d it is %v, %v", n, same, err)
		}
	}
	if next, err := m.Raised(backend.TickNumber(6), 2); err != nil || next != (backend.Mark{Tick: backend.TickNumber(6), Token: 2}) {
		t.Errorf("raised to 6 it is %v, %v", next, err)
	}
	if same, err := m.Raised(backend.TickAt(time.Unix(0, 0)), 2); !errors.Is(err, backend.ErrInvalid) || same != m {
		t.Errorf("a time after a number gives %v, %v", same, err)
	}
}

func TestMarkIncludesTicksUpToItsOwn(t *testing.T) {
	m := backend.Mark{Tick: backend.TickNumber(5), Token: 1}
	for n, want := range map[int64]bool{4: true, 5: true, 6: false} {
		if is, err := m.Includes(backend.TickNumber(n)); is != want || err != nil {
			t.Errorf("it includes %d: %v, %v", n, is, err)
		}
	}
	if is, err := (backend.Mark{}).Includes(backend.TickNumber(0)); is || err != nil {
		t.Errorf("no mark includes a tick: %v, %v", is, err)
	}
	if is, err := m.Includes(backend.TickAt(time.Unix(0, 0))); is || !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("it includes a time: %v, %v", is, err)
	}
}

func TestTimeOutsideOfTheRangeOfTicksIsNone(t *testing.T) {
	for _, year := range []int{1, 1677, 2262, 9999} {
		tick := backend.TickAt(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC))
		if !tick.IsZero() || !errors.Is(backend.CheckTick(tick), backend.ErrInvalid) {
			t.Errorf("the year %d gives the tick %v", year, tick)
		}
	}
}
