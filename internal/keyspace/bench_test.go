package keyspace

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func BenchmarkPut(b *testing.B) {
	for _, c := range []struct{ size, keys int }{{1, 100_000}, {64, 100_000}, {64, 10_000}} {
		size := c.size
		b.Run(fmt.Sprintf("batch=%d/keys=%d", size, c.keys), func(b *testing.B) {
			h := newFixture(b)
			value := make([]byte, 100)
			b.ReportAllocs()
			for i := 0; i < b.N; i += size {
				h.write(func(w *Writer) {
					for j := range size {
						key := fmt.Appendf(nil, "key/%06d", (i+j)*7919%c.keys)
						if _, err := w.Put(PutRequest{Key: key, Value: value}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

func fill(b *testing.B, h *fixture, n int) {
	for i := 0; i < n; i += 1000 {
		h.write(func(w *Writer) {
			for j := range 1000 {
				_, err := w.Put(PutRequest{Key: fmt.Appendf(nil, "key/%06d", i+j), Value: make([]byte, 100), Lease: int64(len(h.leases.alive))})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if err := h.db.Flush(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRangeOne(b *testing.B) {
	h := newFixture(b)
	fill(b, h, 100000)
	read := func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			key := fmt.Appendf(nil, "key/%06d", i*7919%100000)
			res, err := h.store.Range(context.Background(), RangeRequest{Key: key})
			if err != nil || len(res.KVs) != 1 {
				b.Fatal(res, err)
			}
		}
	}
	b.Run("plain", read)
	h.grant(1)
	h.write(func(w *Writer) {
		if _, err := w.Put(PutRequest{Key: []byte("z"), Lease: 1}); err != nil {
			b.Fatal(err)
		}
		h.end(w, 1)
	})
	b.Run("while an ending is pending", read)
}

func BenchmarkRangeAll(b *testing.B) {
	h := newFixture(b)
	fill(b, h, 100000)
	for b.Loop() {
		res, err := h.store.Range(context.Background(), RangeRequest{Key: []byte{0}, End: []byte{0}, CountOnly: true})
		if err != nil || res.Count != 100000 {
			b.Fatal(res, err)
		}
	}
}

// BenchmarkEndLease ends a lease with 100 000 keys.
func BenchmarkEndLease(b *testing.B) {
	for range b.N {
		b.StopTimer()
		h := openFixture(b)
		h.grant(1)
		fill(b, h, 100000)
		keys := h.leases.sorted(1)
		b.StartTimer()
		start := time.Now()
		h.write(func(w *Writer) { w.EndLease(1, 1, keys) })
		b.ReportMetric(float64(time.Since(start).Microseconds()), "µs/end")
		for more := true; more; {
			h.write(func(w *Writer) { more, _ = w.Sweep(1000) })
		}
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/100000, "ns/key-swept")
		b.StopTimer()
		h.db.Close()
	}
}

// BenchmarkPublish publishes a change of one key to 10 000 watchers, one of which watches that key.
func BenchmarkPublish(b *testing.B) {
	for _, kind := range []string{"keys", "ranges"} {
		b.Run(kind, func(b *testing.B) {
			h := newFixture(b)
			hub := NewHub(h.store)
			st := hub.NewStream(StreamLimits{})
			for i := range 10000 {
				req := WatchRequest{Key: fmt.Appendf(nil, "key/%05d", i)}
				if kind == "ranges" {
					req.End = fmt.Appendf(nil, "key/%05d.", i)
				}
				if _, err := st.Watch(req); err != nil {
					b.Fatal(err)
				}
			}
			for !st.idle() {
				if _, err := nextNow(st); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				kv := KV{Key: fmt.Appendf(nil, "key/%05d", i%10000), ModRevision: int64(i + 2)}
				hub.Publish(Changes{{Revision: int64(i + 2), Events: []Event{{KV: kv}}}})
				if r, err := nextNow(st); err != nil || len(r.Events) != 1 {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// BenchmarkCloseStream closes the stream of a client with many watchers on one key, which blocks Publish.
func BenchmarkCloseStream(b *testing.B) {
	h := newFixture(b)
	hub := NewHub(h.store)
	for b.Loop() {
		st := hub.NewStream(StreamLimits{})
		for range 1 << 16 {
			if _, err := st.Watch(WatchRequest{Key: []byte("k")}); err != nil {
				b.Fatal(err)
			}
		}
		st.Close()
	}
}

// BenchmarkLockTransactions measures the requests of a lock by etcd's recipe: a transaction that puts a key if it
// does not exist, and a delete.
func BenchmarkLockTransactions(b *testing.B) {
	h := newFixture(b)
	fill(b, h, 100_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		key := fmt.Appendf(nil, "lock/%d/%x", i%1000, i)
		h.write(func(w *Writer) {
			if _, err := w.Txn(TxnRequest{
				Compare: []Compare{{Key: key, Target: CompareCreate}},
				Success: []TxnOp{PutRequest{Key: key}},
			}); err != nil {
				b.Fatal(err)
			}
		})
		h.write(func(w *Writer) {
			if _, err := w.DeleteRange(DeleteRequest{Key: key}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
