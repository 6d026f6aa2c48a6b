package keyspace_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// oneLease is the simplest implementation of Leases: it has lease 7, and the caller must remember its keys.
type oneLease struct{}

func (oneLease) Generation(id int64) (uint64, bool) { return 1, id == 7 }
func (oneLease) Attach(id int64, key []byte)        { fmt.Printf("lease %d has %s\n", id, key) }
func (oneLease) Detach(id int64, key []byte)        { fmt.Printf("lease %d lost %s\n", id, key) }

func open() (*pebble.DB, *keyspace.Store) {
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: silent{}})
	if err != nil {
		log.Fatal(err)
	}
	s, err := keyspace.Open(db, oneLease{})
	if err != nil {
		log.Fatal(err)
	}
	return db, s
}

// apply applies one batch of log entries, as a replica does.
func apply(db *pebble.DB, s *keyspace.Store, hub *keyspace.Hub, commands func(w *keyspace.Writer)) {
	w := s.Begin(db.NewBatch())
	commands(w)
	if err := w.Seal(); err != nil {
		log.Fatal(err)
	}
	if err := w.Batch().Commit(pebble.NoSync); err != nil {
		log.Fatal(err)
	}
	s.Commit(w)
	hub.Publish(w.Changes())
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func Example() {
	db, s := open()
	defer db.Close()
	hub := keyspace.NewHub(s)
	apply(db, s, hub, func(w *keyspace.Writer) {
		res := must(w.Put(keyspace.PutRequest{Key: []byte("jobs/backup/7"), Value: []byte("host-a"), Lease: 7}))
		fmt.Println("put at revision", res.Revision)
	})
	apply(db, s, hub, func(w *keyspace.Writer) {
		fmt.Println("ended at revision", w.EndLease(7, 1, []string{"jobs/backup/7"}))
	})
	for rev := range int64(4) {
		res := must(s.Range(context.Background(), keyspace.RangeRequest{
			Key: []byte("jobs/"), End: []byte("jobs0"), Revision: rev,
		}))
		fmt.Println("revision", rev, "keys", res.Count)
	}
	// Later, when there is time:
	apply(db, s, hub, func(w *keyspace.Writer) {
		fmt.Println("more to sweep:", must(w.Sweep(100)))
	})
	// Output:
	// lease 7 has jobs/backup/7
	// put at revision 2
	// ended at revision 3
	// revision 0 keys 0
	// revision 1 keys 0
	// revision 2 keys 1
	// revision 3 keys 0
	// more to sweep: false
}

func ExampleHub() {
	db, s := open()
	defer db.Close()
	hub := keyspace.NewHub(s)
	apply(db, s, hub, func(w *keyspace.Writer) {
		must(w.Put(keyspace.PutRequest{Key: []byte("a"), Value: []byte("1")}))
	})

	st := hub.NewStream(keyspace.StreamLimits{})
	defer st.Close()
	must(st.Watch(keyspace.WatchRequest{Key: []byte("a"), StartRevision: 2, PrevKV: true}))
	apply(db, s, hub, func(w *keyspace.Writer) {
		must(w.DeleteRange(keyspace.DeleteRequest{Key: []byte("a")}))
	})
	for events := 0; events < 2; {
		r := must(st.Next(context.Background()))
		if r.Created {
			fmt.Println("watch", r.WatchID, "created")
		}
		for _, e := range r.Events {
			events++
			if e.Type == keyspace.EventPut {
				fmt.Printf("%d: put %s=%s\n", e.KV.ModRevision, e.KV.Key, e.KV.Value)
			} else {
				fmt.Printf("%d: deleted %s, was %s\n", e.KV.ModRevision, e.KV.Key, e.PrevKV.Value)
			}
		}
	}
	// Output:
	// watch 0 created
	// 2: put a=1
	// 3: deleted a, was 1
}

func ExampleWriter_Group() {
	db, s := open()
	defer db.Close()
	hub := keyspace.NewHub(s)
	apply(db, s, hub, func(w *keyspace.Writer) {
		err := w.Group(func() error {
			a := must(w.Put(keyspace.PutRequest{Key: []byte("a")}))
			b := must(w.Put(keyspace.PutRequest{Key: []byte("b")}))
			seen := must(w.Range(keyspace.RangeRequest{Key: []byte("a"), End: []byte("c")}))
			fmt.Println(a.Revision, b.Revision, seen.Count)
			return nil
		})
		fmt.Println(err, s.Revision(), "is still what others see")
	})
	fmt.Println(s.Revision())
	// Output:
	// 2 2 2
	// <nil> 1 is still what others see
	// 2
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	log.Fatalf(f, a...)
}
