package keyspace

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
)

// The parts of a range make up the whole, whatever their size.
func TestPartsOfARangeMakeUpTheWhole(t *testing.T) {
	h := newFixture(t)
	for i := range 20 {
		h.write(func(w *Writer) {
			_, _ = w.Put(PutRequest{Key: fmt.Appendf(nil, "%02d", i), Value: bytes.Repeat([]byte("x"), i*100)})
		})
	}
	read := func(r RangeRequest) RangeResult {
		t.Helper()
		res, err := h.store.Range(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	whole := read(RangeRequest{Key: []byte{0}, End: []byte{0}})
	for _, size := range []int{1, kvOverhead + 1, 1000, 5000, 1 << 20} {
		for _, limit := range []int64{0, 1, 3} {
			var kvs []KV
			for request := (RangeRequest{Key: []byte{0}, End: []byte{0}, PartBytes: size, Limit: limit}); ; {
				part := read(request)
				kvs = append(kvs, part.KVs...)
				if n := int64(len(part.KVs)); n == 0 || part.Count != n || limit > 0 && n > limit {
					t.Fatalf("parts of %d bytes, limit %d: a part has %d keys and the count %d", size, limit, n, part.Count)
				}
				if !part.More {
					break
				}
				request.Key = append(bytes.Clone(kvs[len(kvs)-1].Key), 0)
			}
			if !reflect.DeepEqual(kvs, whole.KVs) {
				t.Errorf("parts of %d bytes, limit %d: %d keys, want %d", size, limit, len(kvs), len(whole.KVs))
			}
		}
	}
}
