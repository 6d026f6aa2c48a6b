package lookout

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/claim"
)

// table is what reads show, and counts them.
type table struct {
	standings []claim.Standing
	reads     int
	err       error
}

func (t *table) read(context.Context) ([]claim.Standing, error) {
	t.reads++
	return append([]claim.Standing{}, t.standings...), t.err
}

func (t *table) hold(holder string) { t.standings[0].Found.Record.Holder = holder }

func at(place, head int64, ahead int) *table {
	return &table{standings: []claim.Standing{{Name: "x", Place: place, Head: head, Ahead: ahead, Found: claim.Found{Record: claim.Record{Holder: "h"}}}}}
}

// looks makes one look in virtual time, and returns how long it took.
func looks(t *testing.T, k *table, l claim.Look, wake <-chan struct{}) ([]claim.Standing, time.Duration) {
	t.Helper()
	began := time.Now()
	all, err := Look(t.Context(), l, wake, k.read)
	if err != nil {
		t.Fatal(err)
	}
	return all, time.Since(began)
}

// The process at the head asks more often than the others, and its look ends when the name is free.
func TestHeadAsksMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		head, other := at(1, 1, 0), at(2, 1, 1)
		l := claim.Look{For: time.Second, Every: 200 * time.Millisecond}
		for _, c := range []struct {
			*table
			reads int
		}{{head, 21}, {other, 6}} {
			if _, lasted := looks(t, c.table, l, nil); lasted != l.For || c.table.reads != c.reads {
				t.Errorf("%d reads in %v, want %d", c.table.reads, lasted, c.reads)
			}
		}
		time.AfterFunc(310*time.Millisecond, func() { head.hold("") })
		if all, lasted := looks(t, head, l, nil); lasted != 350*time.Millisecond || all[0].Ahead != 0 {
			t.Errorf("free after 310ms, and seen after %v: %+v", lasted, all)
		}
		l.Known = []int64{1}
		if _, lasted := looks(t, head, l, nil); lasted != l.For {
			t.Errorf("a turn that is known has ended a look after %v", lasted)
		}
	})
}

// A look ends when the head had its time to claim a free name, and says how long that was. A change of the head or of the
// record begins that time again.
func TestLookEndsWhenTheHeadDoesNotClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := at(3, 1, 2)
		k.hold("")
		k.standings[0].Patience = time.Second
		l := claim.Look{For: 10 * time.Second, Every: 150 * time.Millisecond}
		if all, lasted := looks(t, k, l, nil); lasted != time.Second || all[0].For != lasted {
			t.Errorf("after %v: %+v", lasted, all)
		}
		time.AfterFunc(800*time.Millisecond, func() { k.standings[0].Head = 2 })
		if all, lasted := looks(t, k, l, nil); lasted != 1900*time.Millisecond || all[0].For != time.Second {
			t.Errorf("with another head since 800ms, after %v: %+v", lasted, all)
		}
		k.standings[0].Patience = 0
		time.AfterFunc(100*time.Millisecond, func() { k.standings[0].Found.Record.Op = claim.Op{1} })
		if all, lasted := looks(t, k, l, nil); lasted != 400*time.Millisecond || all[0].For != 250*time.Millisecond {
			t.Errorf("with another record since 100ms, after %v: %+v", lasted, all)
		}
	})
}

// A look ends with its context, when its ticket is gone, and when reading fails. A wake makes it ask at once.
func TestLookEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := at(2, 1, 1)
		l := claim.Look{For: time.Minute}
		time.AfterFunc(time.Second, func() { k.standings = nil })
		if all, lasted := looks(t, k, l, nil); len(all) != 0 || lasted > time.Second+claim.DefaultEvery {
			t.Errorf("without a ticket, after %v: %+v", lasted, all)
		}
		k, wake := at(1, 1, 0), make(chan struct{}, 1)
		l.Every = 40 * time.Second
		time.AfterFunc(time.Second, func() {
			k.hold("")
			wake <- struct{}{}
		})
		if _, lasted := looks(t, k, l, wake); lasted != time.Second {
			t.Errorf("woken after 1s, it has lasted %v", lasted)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		k.hold("h")
		if _, err := Look(ctx, l, nil, k.read); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its context has ended: %v", err)
		}
		k.err = errors.New("no")
		if _, err := Look(t.Context(), l, nil, k.read); !errors.Is(err, k.err) {
			t.Errorf("a read fails: %v", err)
		}
	})
}
