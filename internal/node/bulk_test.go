package node

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// A hundred large puts of one client wait for the disk when another client sends one. The node answers it before half of
// the others.
func TestBulkOfOneClientDoesNotDelayAnother(t *testing.T) {
	const many = 100
	disk, slow := vfs.NewMem(), new(atomic.Bool)
	n, err := Start(t.Context(), Config{Dir: "data", FS: slowDisk{disk, slow}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	<-n.Ready()
	slow.Store(true)
	value := []byte(strings.Repeat("v", 100<<10))
	put := func(client string) {
		if _, _, err := n.Put(WithClient(ctx, client), keyspace.PutRequest{Key: []byte(client), Value: value}); err != nil {
			t.Errorf("put of %s: %v", client, err)
		}
	}
	var answered atomic.Int64
	var writers sync.WaitGroup
	for range many {
		writers.Go(func() { put("many"); answered.Add(1) })
	}
	for { // until all wait: most in the replica, the rest in the node's intake
		status, err := n.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if waiting := status.Queue + int(answered.Load()); waiting == many {
			break
		}
	}
	before := answered.Load()
	put("one")
	if during := answered.Load() - before; during > many/2 {
		t.Errorf("%d puts of another client, which wait already, are answered first", during)
	}
	slow.Store(false)
	writers.Wait()
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
