package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/server"
)

var tick = backend.TickNumber

// marked fails the test if the mark of a name is another one.
func marked(t *testing.T, b *etcd.Backend, name string, want backend.Mark) {
	t.Helper()
	m, err := b.Mark(limited(t), name)
	ok(t, err)
	if m != want {
		t.Errorf("the mark of %s is %+v, want %+v", name, m, want)
	}
}

// The mark of a name is a key without a lease, in no queue. Programs that follow etcd's recipe do not see it.
func TestMarkIsNoKeyOfTheQueue(t *testing.T) {
	s := startStore(t)
	for _, root := range []string{"", "some/prefix/"} {
		t.Run("prefix "+root, func(t *testing.T) {
			b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, Prefix: trimSlash(root)})
			name := unique("marked")
			marked(t, b, name, backend.Mark{})
			l, g := hold(t, b, name)
			ok(t, b.RaiseMark(limited(t), l, tick(5)))
			want := backend.Mark{Tick: tick(5), Token: g.Token}
			marked(t, b, name, want)
			kvs := s.Keys("/leasekeeper/marks/" + root + name)
			if len(kvs) != 1 || string(kvs[0].Value) != want.Text() || kvs[0].Lease != 0 {
				t.Errorf("the keys of the mark: %v", kvs)
			}
			if kvs := s.Keys(root + name + "/"); len(kvs) != 1 {
				t.Errorf("the queue: %v", kvs)
			}
			ok(t, b.Release(limited(t), l))
			s.None(root + name)
			marked(t, b, name, want)
			if m := mutexOf(s, root+name); !m.acquire() {
				t.Error("the mark blocks a mutex of etcd's client")
			}
		})
	}
}

func trimSlash(root string) string {
	if root == "" {
		return root
	}
	return root[:len(root)-1]
}

// Both calls record a tick for the holder of the name, and for no other.
var recordings = map[string]func(*testing.T, *etcd.Backend, backend.Lease) error{
	"RaiseMark": func(t *testing.T, b *etcd.Backend, l backend.Lease) error { return b.RaiseMark(limited(t), l, tick(5)) },
	"Finish": func(t *testing.T, b *etcd.Backend, l backend.Lease) error {
		return b.Finish(limited(t), l, backend.Finish{Tick: tick(5)})
	},
	"Finish and hold": func(t *testing.T, b *etcd.Backend, l backend.Lease) error {
		return b.Finish(limited(t), l, backend.Finish{Tick: tick(5), Hold: time.Second})
	},
}

func TestOnlyTheHolderRecordsATick(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	for what, record := range recordings {
		t.Run(what, func(t *testing.T) {
			for how, harm := range map[string]func(key string, id int64){
				"deleted":          func(key string, _ int64) { s.Delete(key) },
				"made again":       func(key string, id int64) { s.Delete(key); s.Put(key, "", id) },
				"detached":         func(key string, _ int64) { s.Put(key, "", 0) },
				"ended with lease": func(_ string, id int64) { s.Revoke(id) },
			} {
				name := unique("harmed")
				l, _ := hold(t, b, name)
				harm(keyOf(t, l), idOf(t, l))
				if err := record(t, b, l); !errors.Is(err, backend.ErrLost) {
					t.Errorf("%s: %v", how, err)
				}
				marked(t, b, name, backend.Mark{})
				s.Delete(keyOf(t, l))
			}
			name := unique("queued")
			held, _ := hold(t, b, name)
			waits := enqueue(t, b, name)
			is(t, record(t, b, waits), backend.ErrLost)
			marked(t, b, name, backend.Mark{})
			ok(t, b.Release(limited(t), held))
			g, err := b.Await(limited(t), waits)
			ok(t, err)
			ok(t, record(t, b, waits))
			marked(t, b, name, backend.Mark{Tick: tick(5), Token: g.Token})
			ok(t, b.Release(limited(t), waits))
		})
	}
}

// The lease loses its key after the backend has read that the lease holds the name.
func TestNothingIsRecordedForALeaseThatHasJustEnded(t *testing.T) {
	s := startStore(t)
	for how, harm := range map[string]func(key string, id int64){
		"deleted":          func(key string, _ int64) { s.Delete(key) },
		"made again":       func(key string, id int64) { s.Delete(key); s.Put(key, "", id) },
		"detached":         func(key string, _ int64) { s.Put(key, "", 0) },
		"ended with lease": func(_ string, id int64) { s.Revoke(id) },
	} {
		for what, record := range recordings {
			t.Run(what+" "+how, func(t *testing.T) {
				var l backend.Lease // nil until the claim has succeeded
				b := intercepted(t, s, "Write", func(_ context.Context, invoke func() error) error {
					if l != nil {
						harm(keyOf(t, l), idOf(t, l))
					}
					return invoke()
				})
				name := unique("just")
				l, _ = hold(t, b, name)
				is(t, record(t, b, l), backend.ErrLost)
				marked(t, b, name, backend.Mark{})
				s.Delete(keyOf(t, l))
			})
		}
	}
}

// Keys below jobs/nightly/ are older than the key of jobs, and not in its queue.
func TestHolderOfALongerNameKeepsNoTickFromBeingRecorded(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("jobs")
	hold(t, b, name+"/nightly")
	l, g := hold(t, b, name)
	ok(t, b.RaiseMark(limited(t), l, tick(1)))
	marked(t, b, name, backend.Mark{Tick: tick(1), Token: g.Token})
	ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(2)}))
	marked(t, b, name, backend.Mark{Tick: tick(2), Token: g.Token})
}

func TestMarkNeverFallsInEtcd(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("high")
	l, g := hold(t, b, name)
	ok(t, b.RaiseMark(limited(t), l, tick(5)))
	ok(t, b.RaiseMark(limited(t), l, tick(4)))
	is(t, b.RaiseMark(limited(t), l, backend.TickAt(time.Unix(9, 0))), backend.ErrInvalid)
	is(t, b.Finish(limited(t), l, backend.Finish{Tick: backend.TickAt(time.Unix(9, 0))}), backend.ErrInvalid)
	is(t, b.RaiseMark(limited(t), l, backend.Tick{}), backend.ErrInvalid)
	ok(t, renew(t, b, l).Err) // a refused Finish frees nothing
	ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(3)}))
	marked(t, b, name, backend.Mark{Tick: tick(5), Token: g.Token})
	s.None(name)
}

// A call that failed has recorded nothing. A call with an unknown outcome succeeds when it is repeated, and records once.
func TestRecordingSurvivesLostAnswers(t *testing.T) {
	s := startStore(t)
	for what, record := range recordings {
		for _, c := range []struct {
			what fault
			n    int32
			kind error
		}{{lose, 1, nil}, {lose, 3, nil}, {lose, always, backend.ErrUnknownOutcome}, {unsent, 1, nil}, {unsent, always, backend.ErrUnavailable}} {
			t.Run(fmt.Sprint(what, c.what, c.n), func(t *testing.T) {
				t.Parallel()
				f := new(faults)
				b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
				name := unique("lost")
				l, g := hold(t, b, name)
				f.Set(times(c.n, c.what, "Write"))
				err := record(t, b, l)
				f.Set(nil)
				is(t, err, c.kind)
				if errors.Is(err, backend.ErrUnknownOutcome) != (c.kind == backend.ErrUnknownOutcome) {
					t.Errorf("another kind: %v", err)
				}
				if c.kind == backend.ErrUnavailable {
					marked(t, b, name, backend.Mark{})
				}
				if c.kind != nil {
					ok(t, record(t, b, l))
				}
				marked(t, b, name, backend.Mark{Tick: tick(5), Token: g.Token})
				if what == "Finish" {
					s.None(name)
					if s.Alive(idOf(t, l)) {
						t.Error("the lease is left")
					}
				}
				ok(t, b.Release(limited(t), l))
			})
		}
	}
}

// The transaction takes effect, and its answer is lost. Later holders raise the mark before the call is repeated.
func TestRepeatedFinishIsRecognizedBelowLaterMarks(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	other := open(t, s.Addr)
	name := unique("repeated")
	finish := func(b *etcd.Backend, l backend.Lease, n int64) error {
		return b.Finish(limited(t), l, backend.Finish{Tick: tick(n)})
	}
	l, _ := hold(t, b, name)
	f.Set(times(always, lose, "Write"))
	is(t, finish(b, l, 1), backend.ErrUnknownOutcome)
	f.Set(nil)
	s.None(name)
	lost, _ := hold(t, b, name)
	s.Delete(keyOf(t, lost))
	for n := range int64(3) {
		next, _ := hold(t, other, name)
		ok(t, finish(other, next, 2+n))
	}
	ok(t, finish(b, l, 1))
	is(t, finish(b, lost, 2), backend.ErrLost)
	ok(t, b.Release(limited(t), lost))

	s.Compact()
	is(t, finish(b, lost, 2), backend.ErrUnknownOutcome)
}

// A holder finishes with a tick that the mark includes already, so there is nothing to raise.
func TestRepeatedFinishIsRecognizedWithNothingToRaise(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	name := unique("nothing")
	person := backend.Mark{Tick: tick(9)}
	replaced, err := b.ReplaceMark(limited(t), name, backend.Mark{}, person)
	if err != nil || !replaced {
		t.Fatal(replaced, err)
	}
	l, _ := hold(t, b, name)
	f.Set(times(always, lose, "Write"))
	is(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(5)}), backend.ErrUnknownOutcome)
	f.Set(nil)
	ok(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(5)}))
	marked(t, b, name, person)
	s.None(name)
}

// A person replaces the mark whenever the holder is about to write it.
func TestRecordingGivesUpOnAMarkThatKeepsChanging(t *testing.T) {
	s := startStore(t)
	name := unique("contended")
	var n, most atomic.Int64
	b := intercepted(t, s, "Write", func(_ context.Context, invoke func() error) error {
		if now := n.Add(1); now <= most.Load() {
			s.Put(backend.MarkPrefix+name, backend.Mark{Tick: tick(now)}.Text(), 0)
		}
		return invoke()
	})
	l, g := hold(t, b, name)
	n.Store(0)
	most.Store(3)
	ok(t, b.RaiseMark(limited(t), l, tick(1000)))
	marked(t, b, name, backend.Mark{Tick: tick(1000), Token: g.Token})
	n.Store(0)
	most.Store(always)
	is(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(2000)}), backend.ErrContention)
	most.Store(0)
	ok(t, renew(t, b, l).Err)
	if n.Load() > 20 {
		t.Errorf("%d transactions", n.Load())
	}
}

func TestMarkIsReplacedOnlyIfItIsTheOldOne(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	name := unique("replaced")
	none, one, two := backend.Mark{}, backend.Mark{Tick: tick(1)}, backend.Mark{Tick: backend.TickAt(time.Unix(2, 0)), Token: 7}
	for _, c := range []struct {
		old, new backend.Mark
		fault    func(string, any) fault
		want     bool
		kind     error
	}{
		{one, two, nil, false, nil},
		{none, one, times(1, lose, "Write"), true, nil},
		{none, one, nil, false, nil},
		{two, none, nil, false, nil},
		{one, two, times(1, unsent, "Write"), true, nil},
		{two, one, times(always, unsent, "Write"), false, backend.ErrUnavailable},
		{two, one, times(always, lose, "Write"), false, backend.ErrUnknownOutcome},
		{one, none, nil, true, nil},
		{none, none, nil, true, nil},
	} {
		f.Set(c.fault)
		got, err := b.ReplaceMark(limited(t), name, c.old, c.new)
		f.Set(nil)
		if got != c.want || !errors.Is(err, c.kind) {
			t.Errorf("%+v for %+v: %v, %v", c.new, c.old, got, err)
		}
	}
	marked(t, b, name, none)
	if kvs := s.Keys(backend.MarkPrefix + name); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

// Marks sort before most names. A list skips them after one page.
func TestListDoesNotReadAllMarks(t *testing.T) {
	s := startOwn(t, server.Config{})
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	hold(t, b, "jobs/nightly")
	for i := range 25 {
		var puts []*pb.RequestOp
		for j := range 100 {
			key := fmt.Sprintf("%sjobs/%04d", backend.MarkPrefix, 100*i+j)
			puts = append(puts, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte("1 1")}}})
		}
		_, err := s.KV.Txn(limited(t), &pb.TxnRequest{Success: puts})
		ok(t, err)
	}
	f.Set(nil)
	infos, err := b.List(limited(t), "", "", 10)
	if err != nil || len(infos) != 1 || infos[0].Name != "jobs/nightly" {
		t.Errorf("%+v, %v", infos, err)
	}
	// A page of marks, a page of the rest, and a page that shows that there are no more.
	if n := f.Calls()[pb.KV_Range_FullMethodName]; n != 3 {
		t.Errorf("the list takes %d reads of keys, want 3", n)
	}
}

func TestDamagedMarkInEtcdIsCorrupt(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("damaged")
	l, _ := hold(t, b, name)
	s.Put(backend.MarkPrefix+name, "noon", 0)
	_, err := b.Mark(limited(t), name)
	is(t, err, backend.ErrCorrupt)
	_, err = b.ReplaceMark(limited(t), name, backend.Mark{}, backend.Mark{Tick: tick(1)})
	is(t, err, backend.ErrCorrupt)
	is(t, b.RaiseMark(limited(t), l, tick(1)), backend.ErrCorrupt)
	is(t, b.Finish(limited(t), l, backend.Finish{Tick: tick(1)}), backend.ErrCorrupt)
	ok(t, renew(t, b, l).Err)
}

func TestMarksAreListedInPages(t *testing.T) {
	s := startStore(t)
	endpointstest.ListMarksInPages(t, openWith(t, etcd.Config{Endpoints: []string{s.Addr}}))
}
