package server

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func (f *front) compact(rev int64) {
	f.t.Helper()
	_, err := f.kv.Compact(f.ctx(), &pb.CompactionRequest{Revision: rev, Physical: true})
	wantOK(f.t, err)
}

// nextOf reads until a response of one watcher arrives that is not a confirmation.
func (w watchClient) nextOf(id int64) *pb.WatchResponse {
	w.f.t.Helper()
	for {
		if r := w.next(); r.WatchId == id && !r.Created {
			return r
		}
	}
}

// A client does not read and falls behind, and the changes that it has not read are compacted. The watcher that lacks
// them is cancelled, and learns where to continue. What it received before has no gap. Other watchers, on the same
// stream and on others, continue.
func TestCompactionCancelsASlowWatcher(t *testing.T) {
	f := startFront(t)
	narrow, err := grpc.NewClient(f.server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10)) // accepts no more unread bytes
	wantOK(t, err)
	defer narrow.Close()
	stream, err := pb.NewWatchClient(narrow).Watch(f.ctx())
	wantOK(t, err)
	slow, quick := watchClient{f, stream}, f.openWatch(f.ctx())
	slow.create(&pb.WatchCreateRequest{Key: []byte("busy"), WatchId: 1})
	slow.create(&pb.WatchCreateRequest{Key: []byte("quiet"), WatchId: 2})
	quick.create(&pb.WatchCreateRequest{Key: []byte("busy"), WatchId: 3})
	slow.want("1@1 created")
	slow.want("2@1 created")
	quick.want("3@1 created")
	const puts = 150
	value := string(bytes.Repeat([]byte("x"), 64<<10))
	last := int64(1)
	for range puts {
		f.put("busy", value)
		last++
		r := quick.next()
		wantEqual(t, "quick events", len(r.Events), 1)
		wantEqual(t, "quick revision", r.Events[0].Kv.ModRevision, last)
	}
	f.compact(last)
	seen := int64(1)
	var ended *pb.WatchResponse
	for ended == nil {
		r := slow.nextOf(1)
		if r.Canceled {
			ended = r
			continue
		}
		for _, e := range r.Events {
			seen++
			wantEqual(t, "revision of a slow event", e.Kv.ModRevision, seen)
		}
	}
	wantEqual(t, "end", show(ended), fmt.Sprintf("1@%d canceled compacted %d", ended.Header.Revision, last))
	if seen >= last {
		t.Fatal("the slow watcher was not slow")
	}
	f.put("quiet", "1")
	slow.want(fmt.Sprintf("2@%d PUT quiet=1@%d", last+1, last+1))
	f.put("busy", "2")
	quick.want(fmt.Sprintf("3@%d PUT busy=2@%d", last+2, last+2))
	slow.create(&pb.WatchCreateRequest{Key: []byte("busy"), WatchId: 1, StartRevision: ended.CompactRevision})
	slow.want(fmt.Sprintf("1@%d created", last+2))
	resumed := slow.nextOf(1)
	wantEqual(t, "first event after the end", resumed.Events[0].Kv.ModRevision, last)
	eventually(t, "three watchers are counted", func() bool { return f.server.metrics.watchers.Load() == 3 })
}

// A watcher that starts at a compacted revision ends at once. The other watchers of its stream do not.
func TestWatchBelowTheCompactRevisionIsCancelled(t *testing.T) {
	f := startFront(t)
	for i := range 5 {
		f.put("a", fmt.Sprint(i))
	}
	f.compact(5)
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 1, StartRevision: 4})
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 2, StartRevision: 5})
	wantEqual(t, "the one below", w.nextOf(1).CompactRevision, 5)
	var events []int64
	for len(events) < 2 {
		for _, e := range w.nextOf(2).Events {
			events = append(events, e.Kv.ModRevision)
		}
	}
	wantEqual(t, "events of the one at it", fmt.Sprint(events), "[5 6]")
	f.put("a", "5")
	w.want("2@7 PUT a=5@7")
	_, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a"), Revision: 4})
	wantStatus(t, err, rpctypes.ErrGRPCCompacted)
}

// Fast and slow watchers read while everything is compacted repeatedly. Each receives every revision once and in order,
// or learns where it can continue.
func TestWatchersSurviveRepeatedCompaction(t *testing.T) {
	f := startFront(t)
	ctx, cancel := context.WithCancel(f.ctx())
	var received, written atomic.Int64
	var work, watching sync.WaitGroup
	for i := range 8 {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		watching.Go(func() {
			for from := int64(1); ctx.Err() == nil; {
				var err error
				if from, err = f.follow(ctx, from, rng, time.Duration(i)*time.Millisecond, &received); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for begun := time.Now(); time.Since(begun) < 1500*time.Millisecond; {
		for i := range 20 {
			work.Go(func() {
				if _, err := f.kv.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "k%d", i%3)}); err != nil {
					t.Errorf("put: %v", err)
				}
			})
		}
		work.Wait()
		written.Add(20)
		if rand.IntN(3) == 0 {
			f.compact(f.node.Header().Revision - rand.Int64N(10))
		}
	}
	cancel()
	watching.Wait()
	t.Logf("%d writes, %d events received", written.Load(), received.Load())
	if received.Load() < written.Load() {
		t.Errorf("%d events were received of %d writes", received.Load(), written.Load())
	}
}

// follow watches all keys from a revision on. It ends with ctx, at random, or when a compaction cancels it. It returns
// the revision at which to continue.
func (f *front) follow(ctx context.Context, from int64, rng *rand.Rand, pause time.Duration, received *atomic.Int64) (int64, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	stream, err := f.watch.Watch(ctx)
	if err != nil {
		return from, unlessOver(ctx, err)
	}
	stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: from}}})
	for {
		r, err := stream.Recv()
		if err != nil {
			return from, unlessOver(ctx, err)
		}
		if r.Canceled {
			if r.CompactRevision <= from && from > 1 {
				return from, fmt.Errorf("a watcher at %d was cancelled, compacted to %d", from, r.CompactRevision)
			}
			return r.CompactRevision, nil
		}
		for _, e := range r.Events {
			if from > 1 && e.Kv.ModRevision != from {
				return from, fmt.Errorf("the event of revision %d came in place of %d", e.Kv.ModRevision, from)
			}
			from = e.Kv.ModRevision + 1
			received.Add(1)
		}
		if rng.IntN(50) == 0 {
			return from, nil // the client returns later
		}
		time.Sleep(pause)
	}
}

// unlessOver returns err unless the client itself ended the stream.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
