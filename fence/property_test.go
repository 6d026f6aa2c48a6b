package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// TestGuardAgainstModel compares a guard with a map of the highest admitted tokens. It restarts the guard, makes
// saves fail with and without effect, and uses more names than the guard may remember.
func TestGuardAgainstModel(t *testing.T) {
	broken := errors.New("disk broken")
	rapid.Check(t, func(t *rapid.T) {
		disk := newStore()
		config := Config{Marks: disk, MaxNames: rapid.IntRange(1, 4).Draw(t, "names")}
		g := NewGuard(config)
		admitted := make(map[string]Token) // the model: the highest token that a write was admitted with
		saved := make(map[string]Token)    // above admitted after a save that returned an error but took effect
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
				token := Token(rapid.Uint64Range(1, 8).Draw(t, "token"))
				ran := false
				err := g.Do(ctx, name, token, func(context.Context) error { ran = true; return nil })
				if ran != (err == nil) {
					t.Fatalf("ran %v, error %v", ran, err)
				}
				var stale *StaleError
				switch {
				case err == nil:
					if token < admitted[name] {
						t.Fatalf("%s: %d passed after %d", name, token, admitted[name])
					}
					if disk.marks[name] < token {
						t.Fatalf("%s: %d passed and was not saved", name, token)
					}
					admitted[name] = token
				case errors.As(err, &stale):
					if token >= max(admitted[name], saved[name]) {
						t.Fatalf("%s: %d was refused, newest were %d and %d", name, token, admitted[name], saved[name])
					}
					if stale.Highest <= token || stale.Highest > disk.marks[name] || stale.Token != token || stale.Name != name {
						t.Fatalf("the error is %+v, the saved mark is %d", stale, disk.marks[name])
					}
				case errors.Is(err, ErrUnsaved):
					if disk.fail == nil {
						t.Fatalf("%s: %v, although the disk works", name, err)
					}
				default:
					t.Fatal(err)
				}
				saved[name] = max(saved[name], disk.marks[name])
			},
			"restart": func(*rapid.T) { g = NewGuard(config) },
			"break":   func(t *rapid.T) { disk.fail, disk.lie = broken, rapid.Bool().Draw(t, "lie") },
			"repair":  func(*rapid.T) { disk.fail = nil },
			"": func(t *rapid.T) {
				if len(g.places) > config.MaxNames {
					t.Fatalf("%d names are remembered, at most %d may be", len(g.places), config.MaxNames)
				}
				for name, token := range admitted {
					if disk.marks[name] < token {
						t.Fatalf("%s was written with %d, saved is %d", name, token, disk.marks[name])
					}
				}
			},
		})
	})
}

// Many holders of one name write concurrently. Only the guard orders them.
func TestConcurrentWritesTakeEffectInTokenOrder(t *testing.T) {
	for _, marks := range []Marks{nil, newStore()} {
		g := NewGuard(Config{Marks: marks})
		const holders, writes = 32, 20
		var all sync.WaitGroup
		var landed []Token // only the guard orders the appends, so the race detector checks it too
		last := map[Token]int{}
		for token := Token(1); token <= holders; token++ {
			all.Go(func() {
				for i := range writes {
					err := g.Do(t.Context(), "a", token, func(context.Context) error {
						landed = append(landed, token)
						last[token] = i
						return nil
					})
					if err != nil && !errors.Is(err, ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for i := 1; i < len(landed); i++ {
			if landed[i] < landed[i-1] {
				t.Fatalf("%d landed after %d", landed[i], landed[i-1])
			}
		}
		if last[holders] != writes-1 {
			t.Errorf("the newest holder finished write %d of %d", last[holders]+1, writes)
		}
		if p := g.places["a"]; p.users != 0 || p.writers != 0 || len(p.writing) != 0 {
			t.Errorf("something is left behind: %+v", p)
		}
	}
}

// account is a resource that accepts every write.
type account struct{ balance int }

// The timeline of docs/why-tokens.md: holder 33 reads and is paused until holder 34 has replaced it. Then it writes
// the balance that it computed before.
func TestCheckThenWriteLosesAnUpdate(t *testing.T) {
	ctx := t.Context()
	play := func(write func(token Token, balance int, a *account, paused func()) error) (int, error) {
		a := &account{balance: 100}
		old := a.balance + 10              // holder 33 has read the balance
		late := write(33, old, a, func() { // and is paused; meanwhile 34 writes
			wantNil(t, write(34, a.balance+20, a, nil))
		})
		return a.balance, late
	}
	run := func(paused func()) {
		if paused != nil {
			paused()
		}
	}

	// Without a guard the deposit of 34 is lost, and no error reports it.
	balance, err := play(func(_ Token, b int, a *account, paused func()) error { run(paused); a.balance = b; return nil })
	if balance != 110 || err != nil {
		t.Errorf("the update was not lost: %d, %v", balance, err)
	}
	// A check alone helps if the pause was before it …
	g := NewGuard(Config{})
	balance, err = play(func(token Token, b int, a *account, paused func()) error {
		run(paused)
		if err := g.Check(ctx, "account", token); err != nil {
			return err
		}
		a.balance = b
		return nil
	})
	if balance != 120 {
		t.Errorf("the balance is %d, want 120", balance)
	}
	wantStale(t, err, "account", 33, 34)
	// … and not if it was after it.
	g = NewGuard(Config{})
	balance, err = play(func(token Token, b int, a *account, paused func()) error {
		if err := g.Check(ctx, "account", token); err != nil {
			return err
		}
		run(paused)
		a.balance = b
		return nil
	})
	if balance != 110 || err != nil {
		t.Errorf("check-then-act lost no update: %d, %v: correct docs/why-tokens.md", balance, err)
	}
}

// The pause of TestCheckThenWriteLosesAnUpdate, now inside Do: the new holder waits, so it reads the old holder's
// write, and no deposit is lost.
func TestPauseInsideDoLosesNoUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ctx, a := NewGuard(Config{}), t.Context(), &account{balance: 100}
		deposit := func(token Token, amount int, paused func()) error {
			return g.Do(ctx, "account", token, func(context.Context) error {
				b := a.balance
				if paused != nil {
					paused()
				}
				a.balance = b + amount
				return nil
			})
		}
		var newer error
		wantNil(t, deposit(33, 10, func() {
			go func() { newer = deposit(34, 20, nil) }()
			synctest.Wait() // 34 has been admitted, and waits
		}))
		synctest.Wait()
		wantNil(t, newer)
		if a.balance != 130 {
			t.Errorf("the balance is %d, want 130", a.balance)
		}
		wantStale(t, deposit(33, 10, nil), "account", 33, 34)
	})
}

func BenchmarkGuardDo(b *testing.B) {
	g, ctx := NewGuard(Config{}), context.Background()
	b.ReportAllocs()
	for i := range b.N {
		if err := g.Do(ctx, fmt.Sprint("name", i%16), 7, func(context.Context) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
