package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

func (f *front) locks() v3lockpb.LockClient { return v3lockpb.NewLockClient(f.conn) }

func (f *front) lock(ctx context.Context, name string, lease int64) (*v3lockpb.LockResponse, error) {
	return f.locks().Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: lease})
}

func (f *front) mustLock(name string, lease int64) *v3lockpb.LockResponse {
	f.t.Helper()
	resp, err := f.lock(f.ctx(), name, lease)
	wantOK(f.t, err)
	return resp
}

func (f *front) unlock(key []byte) int64 {
	f.t.Helper()
	resp, err := f.locks().Unlock(f.ctx(), &v3lockpb.UnlockRequest{Key: key})
	wantOK(f.t, err)
	return resp.Header.Revision
}

// begin runs a call in the background and returns the channel of its error.
func begin(call func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	return ended
}

func (f *front) beginLock(ctx context.Context, name string, lease int64) <-chan error {
	return begin(func() error { _, err := f.lock(ctx, name, lease); return err })
}

// keysUnder returns the keys below a name, in the order of their creation.
func (f *front) keysUnder(name string) (keys []string) {
	f.t.Helper()
	resp, err := f.kv.Range(f.ctx(), &pb.RangeRequest{
		Key: []byte(name + "/"), RangeEnd: []byte(name + "0"), SortTarget: pb.RangeRequest_CREATE,
	})
	wantOK(f.t, err)
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func (f *front) awaitKeys(name string, n int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d keys under %s", n, name), func() bool { return len(f.keysUnder(name)) == n })
}

// awaitWaiting waits until n claims watch the key before theirs.
func (f *front) awaitWaiting(n int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d claims wait", n), func() bool {
		return f.server.limits.places.Waiting() == int64(n)
	})
}

func due(t testing.TB, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(waitLimit):
		t.Fatal("the call does not end")
		return nil
	}
}

func TestLockAndUnlock(t *testing.T) {
	f := startFront(t)
	f.grant(60, 0x1a)
	resp := f.mustLock("name", 0x1a)
	f.header(resp.Header, 2)
	wantEqual(t, "key", string(resp.Key), "name/1a")
	kv, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: resp.Key})
	wantOK(t, err)
	wantEqual(t, "lease", kv.Kvs[0].Lease, 0x1a)
	wantEqual(t, "value", string(kv.Kvs[0].Value), "")
	again := f.mustLock("name", 0x1a) // the lease already holds the lock
	f.header(again.Header, 2)
	wantEqual(t, "revision", f.unlock(resp.Key), 3)
	wantEqual(t, "revision", f.unlock(resp.Key), 3)

	f.grant(60, -5)
	wantEqual(t, "key of a negative id", string(f.mustLock("name", -5).Key), "name/-5")
	wantEqual(t, "key without a name", string(f.mustLock("", -5).Key), "/-5")

	_, err = f.lock(f.ctx(), "name", 99)
	wantStatus(t, err, rpctypes.ErrGRPCLeaseNotFound)
	_, err = f.locks().Unlock(f.ctx(), &v3lockpb.UnlockRequest{})
	wantStatus(t, err, rpctypes.ErrGRPCEmptyKey)
	_, err = f.lock(f.ctx(), strings.Repeat("x", DefaultMaxRequestBytes), -5)
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooLarge)
}

// Waiters get the lock one after the other, in order of arrival, however the holder before them ends.
func TestLockIsGrantedInOrderOfArrival(t *testing.T) {
	f := startFront(t)
	var got []<-chan error
	for id := int64(1); id <= 4; id++ {
		f.grant(60, id)
		got = append(got, f.beginLock(f.ctx(), "name", id))
		f.awaitKeys("name", int(id))
	}
	f.grant(60, 9)
	f.mustLock("name/below", 9) // another name, though it is below the first
	for i, ended := range got {
		wantOK(t, due(t, ended))
		for _, other := range got[i+1:] {
			wantEqual(t, "calls that ended too early", len(other), 0)
		}
		if i == 1 {
			_, err := f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 2})
			wantOK(t, err)
			continue
		}
		f.unlock(fmt.Appendf(nil, "name/%x", i+1))
	}
}

// The service and the recipe of etcd's clients share one queue.
func TestLockSharesTheQueueOfEtcdsRecipe(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	f.grant(60, 2)
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("name/1"), Lease: 1}) // as a client of the recipe puts it
	wantOK(t, err)
	got := f.beginLock(f.ctx(), "name", 2)
	f.awaitKeys("name", 2)
	f.awaitWaiting(1)
	wantEqual(t, "calls that ended too early", len(got), 0)
	_, err = f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("name/1")})
	wantOK(t, err)
	wantOK(t, due(t, got))
}

// A claim that fails leaves neither a key, for which others would wait, nor a lease.
func TestFailedLockLeavesNoKeyAndNoLease(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	f.grant(60, 2)
	key := f.mustLock("name", 1).Key
	for _, lease := range []int64{2, 0} {
		ctx, cancel := context.WithCancel(f.ctx())
		got := f.beginLock(ctx, "name", lease)
		f.awaitKeys("name", 2)
		cancel()
		wantCode(t, due(t, got), codes.Canceled)
		f.awaitKeys("name", 1)
	}
	eventually(t, "only the two leases are there", func() bool {
		resp, err := f.lease.LeaseLeases(f.ctx(), &pb.LeaseLeasesRequest{})
		wantOK(t, err)
		return len(resp.Leases) == 2
	})
	got := f.beginLock(f.ctx(), "name", 2)
	f.awaitKeys("name", 2)
	_, err := f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 2})
	wantOK(t, err)
	wantStatus(t, due(t, got), status.Error(codes.Unknown, "mutex: session is expired")) // at once, not when its turn would have come
	wantEqual(t, "keys", len(f.keysUnder("name")), 1)

	got = f.beginLock(f.ctx(), "name", 0)
	f.awaitKeys("name", 2)
	waiting := f.keysUnder("name")[1]
	stopped := begin(func() error { return f.server.Stop(f.ctx()) })
	wantStatus(t, due(t, got), rpctypes.ErrGRPCStopped)
	wantOK(t, due(t, stopped))
	_, res, err := f.node.Range(f.ctx(), keyspace.RangeRequest{Key: []byte("name/"), End: []byte("name0")}, false)
	wantOK(t, err)
	if len(res.KVs) != 1 || string(res.KVs[0].Key) != string(key) {
		t.Errorf("after the stop %s is there with %d others", waiting, len(res.KVs)-1)
	}
	wantEqual(t, "queues", f.server.etcd.Queues(), 0)
}

// A client may repeat a claim because its answer was lost, or wait twice. It keeps its key. Only the claim that made
// the key removes it, and only if no other claim of the same lease uses it.
func TestRepeatedLockOfOneLeaseKeepsItsKey(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	f.grant(60, 2)
	held := f.mustLock("name", 1)
	canceled, cancel := context.WithCancel(f.ctx())
	first := f.beginLock(canceled, "name", 2)
	f.awaitKeys("name", 2)
	second := f.beginLock(f.ctx(), "name", 2)
	f.awaitWaiting(2)
	cancel()
	wantCode(t, due(t, first), codes.Canceled)
	f.awaitWaiting(1)
	f.unlock(held.Key)
	wantOK(t, due(t, second))
	wantEqual(t, "key", strings.Join(f.keysUnder("name"), " "), "name/2")
	for range 20 { // the client holds the lock whenever the repeated claim is cancelled
		ctx, cancel := context.WithCancel(f.ctx())
		again := f.beginLock(ctx, "name", 2)
		cancel()
		due(t, again)
	}
	f.awaitWaiting(0)
	wantEqual(t, "key", strings.Join(f.keysUnder("name"), " "), "name/2")
}

// Whenever a client cancels, its key exists exactly if the client received the lock.
func TestCancelledLockHasAKeyOnlyIfAnswered(t *testing.T) {
	f := startFront(t)
	f.grant(600, 1)
	for i := range 60 {
		ctx, cancel := context.WithCancel(f.ctx())
		got := f.beginLock(ctx, "name", 1)
		time.Sleep(time.Duration(i) * 50 * time.Microsecond)
		cancel()
		err := due(t, got)
		f.awaitWaiting(0)
		if err == nil {
			wantEqual(t, "keys", len(f.keysUnder("name")), 1)
			f.unlock([]byte("name/1"))
		}
	}
}

// While a claim waits, only the server can renew the lease that it granted for the claim.
func TestWaitingLockRenewsItsGrantedLease(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	held := f.mustLock("name", 1)
	before := f.node.Header()
	got := begin(func() error {
		resp, err := f.lock(f.ctx(), "name", 0)
		if err == nil && resp.Header.Revision <= before.Revision {
			err = fmt.Errorf("header of revision %d", resp.Header.Revision)
		}
		return err
	})
	f.awaitKeys("name", 2)
	f.unlock(held.Key)
	wantOK(t, due(t, got))
	st, err := f.node.Status(f.ctx())
	wantOK(t, err)
	if st.Renewed < 2 {
		t.Errorf("%d renewals, want one when it began to wait and one when it was done", st.Renewed)
	}
	for _, key := range f.keysUnder("name") {
		kv, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte(key)})
		wantOK(t, err)
		ttl, err := f.lease.LeaseTimeToLive(f.ctx(), &pb.LeaseTimeToLiveRequest{ID: kv.Kvs[0].Lease})
		wantOK(t, err)
		wantEqual(t, "granted TTL", ttl.GrantedTTL, 60)
		wantEqual(t, "key", key, fmt.Sprintf("name/%x", kv.Kvs[0].Lease))
	}
}

func TestLocksExcludeEachOther(t *testing.T) {
	f := startFront(t)
	var inside, rounds atomic.Int32
	var all sync.WaitGroup
	for id := int64(1); id <= 8; id++ {
		f.grant(600, id)
		all.Go(func() {
			for range 10 {
				resp, err := f.lock(f.ctx(), "name", id)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two hold the lock")
				}
				rounds.Add(1)
				inside.Add(-1)
				f.unlock(resp.Key)
			}
		})
	}
	all.Wait()
	wantEqual(t, "rounds", rounds.Load(), 80)
}

// Waiting claims have no time limit, do not count as requests, and have their own bound.
func TestWaitingLocksHaveTheirOwnBound(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequests, cfg.RequestTimeout = 4, 100*time.Millisecond
	f := startWith(t, cfg, nil)
	for id := int64(1); id <= 4; id++ {
		f.grant(60, id)
	}
	f.mustLock("name", 1)
	ctx, cancel := context.WithCancel(f.ctx())
	second, third := f.beginLock(ctx, "name", 2), f.beginLock(ctx, "name", 3)
	f.awaitKeys("name", 3)
	_, err := f.lock(f.ctx(), "name", 4)
	wantStatus(t, err, status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+admission.ErrShareTaken.Error()))
	time.Sleep(3 * cfg.RequestTimeout)
	wantEqual(t, "calls that ended", len(second)+len(third), 0)
	f.put("a", "")
	cancel()
	due(t, second)
	due(t, third)
}

func TestLockWithoutLeaderFails(t *testing.T) {
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{Node: n, serving: func() error { return replica.ErrNoLeader }}
	})
	_, err := f.lock(needLeader(f.ctx()), "name", 1)
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
}

// Reflection returns every file together with its imports.
func TestReflectionServesCompleteDescriptors(t *testing.T) {
	f := startFront(t)
	stream, err := reflectionpb.NewServerReflectionClient(f.conn).ServerReflectionInfo(f.ctx())
	wantOK(t, err)
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		wantOK(t, stream.Send(req))
		resp, err := stream.Recv()
		wantOK(t, err)
		return resp
	}
	var names []string
	for _, service := range ask(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService() {
		names = append(names, service.Name)
	}
	set := new(descriptorpb.FileDescriptorSet) // a stream sends a file that several others import only once
	for _, name := range []string{"etcdserverpb.KV", "etcdserverpb.Lease", "v3lockpb.Lock", "v3electionpb.Election", "grpc.health.v1.Health"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %q", name, names)
			continue
		}
		resp := ask(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name},
		})
		for _, data := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := new(descriptorpb.FileDescriptorProto)
			wantOK(t, proto.Unmarshal(data, file))
			if !slices.ContainsFunc(set.File, func(other *descriptorpb.FileDescriptorProto) bool { return other.GetName() == file.GetName() }) {
				set.File = append(set.File, file)
			}
		}
		files, err := protodesc.NewFiles(set)
		wantOK(t, err)
		_, err = files.FindDescriptorByName(protoreflect.FullName(name))
		wantOK(t, err)
	}
	wantOK(t, stream.CloseSend())
}
