package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// gatedDB is a database in which each write waits until the test releases it.
type gatedDB struct {
	scriptedDB
	written func(names []string) ([][][]any, error) // answers a write

	mu   sync.Mutex
	sent []string // the writes; of a batch the names in one text
	goOn map[string]chan struct{}
}

// all answers that all was written.
func all(names []string) ([][][]any, error) {
	rows := make([][][]any, len(names))
	for i := range rows {
		rows[i] = [][]any{{false}}
	}
	return rows, nil
}

// waitForRelease notes a write and answers it when the test releases it.
func (c *gatedDB) waitForRelease(ctx context.Context, what string, names []string) ([][][]any, error) {
	c.mu.Lock()
	c.sent = append(c.sent, what)
	c.mu.Unlock()
	select {
	case <-c.way(what):
		return c.written(names)
	case <-ctx.Done():
		return nil, &Failure{Kind: backend.ErrUnknownOutcome, Err: ctx.Err()}
	}
}

func (c *gatedDB) way(what string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.goOn[what] == nil {
		c.goOn[what] = make(chan struct{})
	}
	return c.goOn[what]
}

// namesOf returns the names that a statement writes, with a mark in front if the statement does not wait for a
// locked row.
func namesOf(statement string, args []any) []string {
	mark, names := "", []string{}
	if strings.Contains(statement, "SKIP LOCKED") {
		mark = "*"
	}
	if strings.Contains(statement, "unnest") {
		names = args[togetherArrays-1].([]string)
	} else {
		names = append(names, args[argName-1].(string))
	}
	marked := slices.Clone(names)
	for i := range marked {
		marked[i] = mark + marked[i]
	}
	return marked
}

func (c *gatedDB) Query(ctx context.Context, statement string, args ...any) ([][]any, error) {
	if !strings.Contains(statement, "UPDATE") {
		return c.scriptedDB.Query(ctx, statement, args...)
	}
	names := namesOf(statement, args)
	rows, err := c.waitForRelease(ctx, strings.Join(names, " "), names)
	if err != nil || !strings.Contains(statement, "unnest") {
		return slices.Concat(rows...), err
	}
	var together [][]any
	for i, row := range rows {
		if row != nil {
			together = append(together, append([]any{strings.TrimPrefix(names[i], "*")}, row[0]...))
		}
	}
	return together, nil
}

// release releases writes, one after the other.
func (c *gatedDB) release(whats ...string) {
	for _, what := range whats {
		c.way(what) <- struct{}{}
		synctest.Wait()
	}
}

// checkSent fails unless exactly these writes were sent since the last call.
func (c *gatedDB) checkSent(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Sort(c.sent); !slices.Equal(c.sent, want) {
		t.Errorf("%q was sent, and not %q", c.sent, want)
	}
	c.sent = nil
}

// writer writes to a gatedDB. Results come with the name of their write.
type writer struct {
	*Store
	came chan string
}

func crowded(t *testing.T) (*gatedDB, *writer) {
	t.Helper()
	c := &gatedDB{written: all, goOn: make(map[string]chan struct{})}
	c.answer = func(statement string, _ []any) ([][]any, error) {
		if strings.Contains(statement, "max(version)") {
			return [][]any{{int64(Version), true}}, nil
		}
		return [][]any{{modeWriter, int64(0), "on"}}, nil
	}
	s, err := New(t.Context(), c, PostgreSQL, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return c, &writer{s, make(chan string, 100)}
}

// write claims a name or, if the name begins with an R, releases it. It returns when the write is under way or
// waits.
func (w *writer) write(ctx context.Context, names ...string) {
	for _, name := range names {
		r, takes := some, name[0] != 'R'
		if r.Name, r.Op = name, claim.NewOp(); !takes {
			r.Holder = ""
		}
		go func() {
			done, err := w.Swap(ctx, claim.Swap{Old: claim.NewOp(), Record: r, Owner: true, Keeps: takes})
			text := fmt.Sprint(name, " ", done)
			for _, kind := range []error{backend.ErrUnknownOutcome, backend.ErrUnavailable, backend.ErrInvalid, backend.ErrClosed} {
				if errors.Is(err, kind) {
					text = name + " " + kind.Error()
				}
			}
			w.came <- text
		}()
		synctest.Wait()
	}
}

// checkResults fails unless exactly these results have come since the last call.
func (w *writer) checkResults(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for len(w.came) > 0 {
		got = append(got, <-w.came)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the results are %q, not %q", got, want)
	}
}

// Writes that come while a few are under way run as a batch when one of those is done, except a second write of
// a name.
func TestWaitingWritesAreCommittedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := crowded(t)
		w.write(t.Context(), "a", "Rb", "c", "Rd", "c", "e")
		c.checkSent(t, "*Rb", "a")
		c.release("a")
		w.checkResults(t, "a true")
		c.checkSent(t, "*c *Rd *e")
		w.write(t.Context(), "f", "g")
		c.release("*c *Rd *e")
		w.checkResults(t, "Rd true", "c true", "e true")
		c.checkSent(t, "*c *f *g")
		c.release("*Rb")
		w.checkResults(t, "Rb true")
		w.write(t.Context(), "h", "i") // they wait for the batch, though fewer than the maximum are under way
		c.checkSent(t)
		c.release("*c *f *g")
		c.checkSent(t, "*h *i")
		c.release("*h *i")
		w.checkResults(t, "c true", "f true", "g true", "h true", "i true")
		w.write(t.Context(), "a", "b")
		c.checkSent(t, "a", "b")
		c.release("a", "b")
		w.checkResults(t, "a true", "b true")
	})
}

// While a batch is under way, another one begins only when enough writes have gathered.
func TestEnoughWritesGoWhileABatchIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := crowded(t)
		w.write(t.Context(), "a", "b", "c", "d")
		c.release("a", "b")
		c.checkSent(t, "*c *d", "a", "b")
		var names, all []string
		for i := range enough {
			names = append(names, fmt.Sprint("n", string(rune('A'+i))))
			all = append(all, "*"+names[i])
		}
		w.write(t.Context(), names[:enough-1]...)
		c.checkSent(t)
		w.write(t.Context(), names[enough-1], "e")
		c.checkSent(t, strings.Join(all, " "))
		c.release("*c *d") // one write alone is not enough yet
		c.checkSent(t)
		c.release(strings.Join(all, " "))
		c.checkSent(t, "e")
		c.release("e")
		if results := len(w.came); results != 4+enough+1 {
			t.Errorf("%d writes have a result", results)
		}
	})
}

// A batch has at most maxBatch writes, and at most one of each name.
func TestBatchIsBounded(t *testing.T) {
	q := &writeQueue{}
	for i := range 2 * maxBatch {
		q.waits = append(q.waits, &ownerWrite{name: fmt.Sprint("n", i/2)})
	}
	q.waits = append(q.waits, &ownerWrite{name: "last"})
	names := map[string]bool{}
	batch := q.takeOldest()
	for _, w := range batch {
		names[w.name] = true
	}
	if len(batch) != maxBatch || len(names) != maxBatch || len(q.waits) != maxBatch+1 {
		t.Errorf("%d writes of %d names are in the batch, and %d are left", len(batch), len(names), len(q.waits))
	}
}

// A write that was skipped because its row is locked waits for that lock alone, and delays no other write.
func TestWriteOfALockedRowDelaysNoOtherWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := crowded(t)
		locked := func(names []string) ([][][]any, error) {
			rows, err := all(names)
			for i, name := range names {
				if strings.HasPrefix(name, "*R") {
					rows[i] = nil
				}
			}
			return rows, err
		}
		c.written = locked
		w.write(t.Context(), "a", "Rb", "c", "Rd", "Re")
		c.release("*Rb")
		c.checkSent(t, "*Rb", "*c *Rd *Re", "Rb", "a")
		c.release("*c *Rd *Re")
		c.checkSent(t, "Rd", "Re")
		w.checkResults(t, "c true")
		c.release("a")
		w.write(t.Context(), "f", "g") // those that wait for a lock take no place
		c.checkSent(t, "f", "g")
		c.release("f", "g", "Rb", "Re", "Rd")
		w.checkResults(t, "Rb true", "Rd true", "Re true", "a true", "f true", "g true")
	})
}

// The writes of a failed batch are tried alone, unless the batch may have happened; then all get that error.
func TestWritesOfAFailedBatchAreTriedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := crowded(t)
		fails := func(kind error) {
			c.written = func(names []string) ([][][]any, error) {
				if len(names) > 1 {
					return nil, &Failure{Kind: kind, Err: errors.New("no")}
				}
				return all(names)
			}
		}
		for _, kind := range []error{backend.ErrUnavailable, backend.ErrInvalid} {
			fails(kind)
			w.write(t.Context(), "a", "b", "c", "Rd")
			c.release("a", "b", "*c *Rd")
			c.checkSent(t, "*c *Rd", "Rd", "a", "b", "c")
			c.release("c", "Rd")
			w.checkResults(t, "Rd true", "a true", "b true", "c true")
		}
		fails(backend.ErrUnknownOutcome)
		w.write(t.Context(), "a", "b", "c", "Rd")
		c.release("a", "b", "*c *Rd")
		c.checkSent(t, "*c *Rd", "a", "b")
		unknown := backend.ErrUnknownOutcome.Error()
		w.checkResults(t, "Rd "+unknown, "a true", "b true", "c "+unknown)
	})
}

// A caller that stops waiting for its turn is not written. One that stops waiting for a batch does not know the
// outcome.
func TestCallerMayLeaveWhileItsWriteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := crowded(t)
		ctx, cancel := context.WithCancel(t.Context())
		w.write(t.Context(), "a", "b")
		w.write(ctx, "c", "d")
		cancel()
		w.checkResults(t, "c "+backend.ErrUnavailable.Error(), "d "+backend.ErrUnavailable.Error())
		w.write(t.Context(), "e", "f")
		ctx, cancel = context.WithCancel(t.Context())
		w.write(ctx, "g")
		c.release("a")
		c.checkSent(t, "*e *f *g", "a", "b")
		cancel()
		w.checkResults(t, "a true", "g "+backend.ErrUnknownOutcome.Error())
		c.release("*e *f *g", "b")
		w.checkResults(t, "b true", "e true", "f true")
	})
}

// If the writes under way hang, others wait for them only briefly. A batch that hangs ends.
func TestHangingWriteDelaysOthersBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := crowded(t)
		w.write(t.Context(), "a", "b", "Rc")
		time.Sleep(longWait - 1)
		c.checkSent(t, "a", "b")
		time.Sleep(time.Nanosecond)
		c.checkSent(t, "Rc")
		w.write(t.Context(), "d", "e")
		c.release("a")
		c.checkSent(t, "*d *e")
		w.write(t.Context(), "f")
		c.release("b")
		w.write(t.Context(), "g", "h")
		c.checkSent(t)
		time.Sleep(longWait)
		c.checkSent(t, "f", "g", "h")
		w.write(t.Context(), "i", "j", "k")
		c.release("i") // no write waits for the batch from now on
		c.checkSent(t, "*j *k", "i")
		time.Sleep(batchLimit)
		unknown := backend.ErrUnknownOutcome.Error()
		w.checkResults(t, "a true", "b true", "d "+unknown, "e "+unknown, "i true", "j "+unknown, "k "+unknown)
		w.write(t.Context(), "l", "m")
		c.checkSent(t, "l", "m") // in their place
		c.release("Rc", "f", "g", "h", "l", "m")
		w.checkResults(t, "Rc true", "f true", "g true", "h true", "l true", "m true")
	})
}

// A store that is closed waits for its batches, and writes nothing more.
func TestCloseWaitsForBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := crowded(t)
		w.write(t.Context(), "a", "b", "c", "d")
		c.release("a")
		w.write(t.Context(), "e", "f")
		c.checkSent(t, "*c *d", "a", "b")
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		ended := make(chan struct{})
		go func() {
			w.Wait()
			close(ended)
		}()
		closed := backend.ErrClosed.Error()
		w.checkResults(t, "a true", "e "+closed, "f "+closed)
		select {
		case <-ended:
			t.Error("it does not wait for what is under way")
		default:
		}
		c.release("*c *d", "b")
		<-ended
		w.checkResults(t, "b true", "c true", "d true")
		w.write(t.Context(), "g", "h", "i")
		w.checkResults(t, "g "+closed, "h "+closed, "i "+closed)
		c.checkSent(t)
	})
}

// sharingDB is a gatedDB that stores may share with others.
type sharingDB struct {
	*gatedDB
	shares string
}

func (d sharingDB) Shares() string { return d.shares }

// Stores of one database with one configuration commit their writes together. A store that is closed takes nothing from
// the others.
func TestStoresOfOneDatabaseShareBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, one := crowded(t)
		open := func(shares string, c Config) *writer {
			s, err := New(t.Context(), sharingDB{first, shares}, PostgreSQL, c)
			if err != nil {
				t.Fatal(err)
			}
			return &writer{s, one.came}
		}
		a, b := open("x", Config{}), open("x", Config{})
		for _, other := range []*writer{one, open("", Config{}), open("", Config{}), open("y", Config{}), open("x", Config{Namespace: "other"})} {
			if other.queue == a.queue {
				t.Error("stores that differ share a queue")
			}
		}
		a.write(t.Context(), "a", "b")
		a.write(t.Context(), "c")
		b.write(t.Context(), "d", "Re")
		first.release("a")
		first.checkSent(t, "*c *d *Re", "a", "b")
		first.release("*c *d *Re", "b")
		one.checkResults(t, "Re true", "a true", "b true", "c true", "d true")

		b.write(t.Context(), "a", "b")
		a.write(t.Context(), "c", "d")
		b.write(t.Context(), "e")
		first.checkSent(t, "a", "b")
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		b.Wait()
		one.checkResults(t, "e "+backend.ErrClosed.Error())
		first.release("a")
		first.checkSent(t, "*c *d")
		first.release("*c *d", "b")
		one.checkResults(t, "a true", "b true", "c true", "d true")
	})
}
