package demo

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"testing"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/memory" // memory:
)

// An order that came when a lease ended is not obeyed in the next tenure.
func TestOrderForAnEarlierTenureIsDropped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k, err := leasekeeper.Open(ctx, "memory:", leasekeeper.WithHolder("blue"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	lease, err := k.Acquire(ctx, leaseName)
	if err != nil {
		t.Fatal(err)
	}
	orders := make(chan string, 8)
	orders <- orderWrite
	orders <- orderSlow
	in, out := io.Pipe()
	defer in.Close() // ends a worker that still writes
	w := &worker{file: filepath.Join(t.TempDir(), "report"), keeper: k, out: out, orders: orders, slow: true}
	held := make(chan error, 1)
	go func() {
		held <- w.hold(ctx, lease)
		out.Close()
	}()
	reports := json.NewDecoder(in)
	for _, want := range []string{reportHolds, reportWrote, reportWrote} {
		var got report
		if err := reports.Decode(&got); err != nil || got.Kind != want {
			t.Fatalf("the worker reports %+v, %v; want %q", got, err, want)
		}
	}
	orders <- orderRelease
	for {
		var got report
		if err := reports.Decode(&got); err == io.EOF {
			break
		} else if err != nil || got.Kind == reportChecked || got.Kind == reportFailed {
			t.Fatalf("the worker reports %+v, %v", got, err)
		}
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
}
