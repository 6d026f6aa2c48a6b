package claim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// heir returns a Move.To that hands names to a client of another store.
func heir(to *actor) func(context.Context, *claim.Record) error {
	return func(ctx context.Context, r *claim.Record) error { return to.Inherit(ctx, r.Name, r.Token, r.Past) }
}

// elsewhere returns a client of a store of its own, on the same machine.
func elsewhere(t *testing.T) *actor { return newWorld(t).actor("b", time.Hour) }

func (a *actor) used(name string, times int) backend.Token {
	a.Helper()
	for range times {
		if err := a.Release(a.Context(), a.hold(name, time.Minute)); err != nil {
			a.Fatal(err)
		}
	}
	return a.state(name).Record.Token
}

// recorded reports whether the name has a record.
func (a *actor) recorded(name string) bool {
	a.Helper()
	r := a.state(name).Record
	return r.Exists()
}

func TestMoveKeepsTokensGrowing(t *testing.T) {
	from, to := newWorld(t).actor("a", time.Hour), elsewhere(t)
	last := from.used("jobs/x", 5)
	from.used("jobs/y", 1)
	from.used("other", 1)
	to.used("jobs/y", 3) // its tokens are higher here already
	there := to.state("jobs/y").Record.Token

	moved, err := from.Move(t.Context(), claim.Move{Prefix: "jobs/", To: heir(to)})
	if err != nil || moved != 2 {
		t.Fatalf("moved %d, %v", moved, err)
	}
	if from.recorded("jobs/x") || !from.recorded("other") {
		t.Error("what was moved is still there, or what was not is gone")
	}
	if got := to.state("jobs/x").Record; got.Token != last || got.Holder != "" || len(got.Past) != 5 {
		t.Errorf("there is %+v, want a tombstone with token %d and its past", got, last)
	}
	from.used("jobs/z", 2)
	if _, err := to.RaiseFloor(t.Context(), 100); err != nil { // its floor is above all tokens that move
		t.Fatal(err)
	}
	if _, err := from.Move(t.Context(), claim.Move{Prefix: "jobs/z", To: heir(to)}); err != nil {
		t.Fatal(err)
	}
	if got := to.state("jobs/z").Record; len(got.Past) != 2 {
		t.Errorf("the past of what was moved is %+v", got.Past)
	}
	if got := to.state("jobs/y").Record.Token; got != there {
		t.Errorf("a token that was higher already is %d, want %d", got, there)
	}
	if got := to.hold("jobs/x", time.Minute).Token(); got <= last {
		t.Errorf("the next token is %d, after %d", got, last)
	}
	if got := from.hold("jobs/x", time.Minute).Token(); got <= last { // no client should, but a claim that does gets a higher token
		t.Errorf("the next token where it came from is %d, after %d", got, last)
	}
}

func TestMoveLeavesNamesInUse(t *testing.T) {
	from, to := newWorld(t).actor("a", time.Hour), elsewhere(t)
	from.hold("held", time.Minute)
	from.used("pinned", 1)
	if err := from.Pin(t.Context(), "pinned", "why"); err != nil {
		t.Fatal(err)
	}
	from.used("there", 4)
	to.hold("there", time.Minute) // with a token below those that it had here
	from.used("above", 1)
	to.used("above", 4)
	to.hold("above", time.Minute)
	from.used("free", 1)
	from.hold("over", time.Second)
	from.pass(2 * time.Second)
	from.used("broken", 1)
	from.memory.Damage("", "broken")

	kinds := map[string]error{"held": backend.ErrHeld, "pinned": backend.ErrPinned, "there": backend.ErrHeld, "broken": backend.ErrCorrupt}
	for _, dry := range []bool{true, false} {
		move := claim.Move{To: heir(to)}
		want, stay := 3, 4
		if dry {
			move.To, want, stay = nil, 4, 3 // the destination is not looked at
		}
		left := 0
		move.Left = func(name string, why error) {
			left++
			if kinds[name] == nil || !errors.Is(why, kinds[name]) {
				t.Errorf("%s stays: %v", name, why)
			}
		}
		seen := 0
		move.Progress = func(s, _ int) { seen = s }
		moved, err := from.Move(t.Context(), move)
		if err != nil || moved != want || left != stay || seen != want+stay {
			t.Errorf("dry %v: moved %d, left %d, saw %d, %v; want %d and %d", dry, moved, left, seen, err, want, stay)
		}
		if dry && (!from.recorded("free") || to.recorded("free")) {
			t.Error("something was done although nothing was to be")
		}
	}
}

// Whatever fails in a move, and however often it is repeated: no name is removed here before the destination
// knows its token.
func TestMoveCanBeRepeated(t *testing.T) {
	from, to := newWorld(t).actor("a", time.Hour), elsewhere(t)
	const names = 12
	last := map[string]backend.Token{}
	for i := range names {
		name := fmt.Sprintf("jobs/%02d", i)
		last[name] = from.used(name, 1+i)
	}
	cut, calls := errors.New("cut"), 0
	flaky := func(ctx context.Context, r *claim.Record) error {
		calls++
		if calls%5 == 0 {
			return cut // before the destination has it
		}
		err := heir(to)(ctx, r)
		if calls%7 == 0 {
			return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, cut) // after the destination has it
		}
		return err
	}
	moved := 0
	for range 10 * names {
		n, err := from.Move(t.Context(), claim.Move{To: flaky})
		for name, token := range last {
			if !from.recorded(name) && to.state(name).Record.Token < token {
				t.Fatalf("%s is forgotten, and its token %d not known where it goes", name, token)
			}
		}
		if moved += n; err == nil {
			break
		} else if !errors.Is(err, cut) {
			t.Fatal(err)
		}
	}
	if moved != names {
		t.Errorf("%d were moved, want %d", moved, names)
	}
	n, err := from.Move(t.Context(), claim.Move{To: heir(to)})
	if n != 0 || err != nil {
		t.Errorf("once more: %d, %v", n, err)
	}
}

// A name that is claimed while it is being moved stays.
func TestMoveLosesToAClaim(t *testing.T) {
	from, to := newWorld(t).actor("a", time.Hour), elsewhere(t)
	from.used("x", 1)
	var l *claim.Lease
	left := 0
	moved, err := from.Move(t.Context(), claim.Move{
		To: func(ctx context.Context, r *claim.Record) error {
			l = from.hold("x", time.Minute)
			return heir(to)(ctx, r)
		},
		Left: func(name string, why error) {
			left++
			if !errors.Is(why, backend.ErrContention) {
				t.Errorf("%s stays: %v", name, why)
			}
		},
	})
	if moved != 0 || left != 1 || err != nil {
		t.Fatalf("moved %d, left %d, %v", moved, left, err)
	}
	from.extend(l, time.Minute)
}

// A claim that was decided on a read from before the inheritance fails, so every token that is granted is above
// the inherited one.
func TestInheritDefeatsClaimsUnderWay(t *testing.T) {
	to := elsewhere(t)
	to.used("x", 1)
	old, err := to.Store().Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Inherit(t.Context(), "x", 50, nil); err != nil {
		t.Fatal(err)
	}
	late := old.Record
	late.Op, late.Holder, late.Token = claim.NewOp(), "late", late.Token+1
	if done, err := to.Store().Swap(t.Context(), claim.Swap{Old: old.Record.Op, Record: late}); done || err != nil {
		t.Errorf("a late claim: %v, %v", done, err)
	}
	if got := to.hold("x", time.Minute).Token(); got != 51 {
		t.Errorf("the next token is %d", got)
	}
	to.is("a holder below", to.Inherit(t.Context(), "x", 51, nil), backend.ErrHeld)
	to.is("a holder above", to.Inherit(t.Context(), "x", 50, nil), nil)
	to.is("no tokens left", to.Inherit(t.Context(), "y", 1<<63, nil), backend.ErrInvalid)
	to.is("no name", to.Inherit(t.Context(), "/", 1, nil), backend.ErrInvalid)
}

func TestHighestTokenIsThatOfRecordsOrFloor(t *testing.T) {
	a := newWorld(t).actor("a", time.Hour)
	high := a.used("x", 5)
	a.used("y", 1)
	if highest, floor, err := a.HighestToken(t.Context()); highest != high || floor != 0 || err != nil {
		t.Errorf("highest %d, floor %d, %v; want %d", highest, floor, err, high)
	}
	if _, err := a.RaiseFloor(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if highest, floor, err := a.HighestToken(t.Context()); highest != 100 || floor != 100 || err != nil {
		t.Errorf("highest %d, floor %d, %v; want 100", highest, floor, err)
	}
}
