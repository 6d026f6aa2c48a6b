package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

type watchClient struct {
	f *front
	pb.Watch_WatchClient
}

func (f *front) openWatch(ctx context.Context) watchClient {
	f.t.Helper()
	stream, err := f.watch.Watch(ctx)
	wantOK(f.t, err)
	return watchClient{f, stream}
}

func (w watchClient) send(r *pb.WatchRequest) {
	w.f.t.Helper()
	wantOK(w.f.t, w.Send(r))
}

func (w watchClient) create(r *pb.WatchCreateRequest) {
	w.f.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (w watchClient) cancel(id int64) {
	w.f.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (w watchClient) progress() {
	w.f.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (w watchClient) next() *pb.WatchResponse {
	w.f.t.Helper()
	resp, err := w.Recv()
	wantOK(w.f.t, err)
	return resp
}

// want checks the next response, in the form of show.
func (w watchClient) want(want string) *pb.WatchResponse {
	w.f.t.Helper()
	resp := w.next()
	wantEqual(w.f.t, "response", show(resp), want)
	return resp
}

// show formats a response without its zero fields: id@revision, flags, reason, events.
func show(r *pb.WatchResponse) string {
	parts := []string{fmt.Sprintf("%d@%d", r.WatchId, r.Header.GetRevision())}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"created", r.Created}, {"canceled", r.Canceled}, {"fragment", r.Fragment}} {
		if flag.set {
			parts = append(parts, flag.name)
		}
	}
	if r.CompactRevision != 0 {
		parts = append(parts, fmt.Sprint("compacted ", r.CompactRevision))
	}
	if r.CancelReason != "" {
		parts = append(parts, fmt.Sprintf("(%s)", r.CancelReason))
	}
	for _, e := range r.Events {
		event := fmt.Sprintf("%v %s=%s@%d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
		if e.PrevKv != nil {
			event += fmt.Sprintf(" was %s@%d", e.PrevKv.Value, e.PrevKv.ModRevision)
		}
		parts = append(parts, event)
	}
	return strings.Join(parts, " ")
}

func TestWatchReceivesPutsAndDeletes(t *testing.T) {
	f := startFront(t)
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("c"), PrevKv: true})
	f.header(w.want("0@1 created").Header, 1)
	f.put("a", "1")
	f.header(w.want("0@2 PUT a=1@2").Header, 2)
	f.put("a", "2")
	w.want("0@3 PUT a=2@3 was 1@2")
	f.put("x", "not watched")
	_, err := f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("a")})
	wantOK(t, err)
	w.want("0@5 DELETE a=@5 was 2@3")
}

func TestWatchIDsAreUniqueAndErrorsCancel(t *testing.T) {
	f := startFront(t)
	w := f.openWatch(f.ctx())
	a := []byte("a")
	for _, r := range []*pb.WatchCreateRequest{
		{Key: a}, {Key: a, WatchId: 7}, {Key: a}, {Key: a, WatchId: 7}, {Key: a, StartRevision: -1},
		{Key: []byte("b"), RangeEnd: a},
	} {
		w.create(r)
	}
	w.want("0@1 created")
	w.want("7@1 created")
	w.want("1@1 created")
	w.want("-1@1 created canceled (mvcc: duplicate watch ID provided on the WatchStream)")
	w.want("-1@1 created canceled (etcdserver: mvcc: required revision has been compacted)")
	w.want("-1@1 created canceled (mvcc: watcher range is empty)")
	// A cancel of an unknown watcher and an empty request are not answered, and do not end the stream.
	w.cancel(99)
	w.send(&pb.WatchRequest{})
	w.cancel(7)
	w.want("7@1 canceled")
	w.create(&pb.WatchCreateRequest{Key: a, WatchId: 7})
	w.want("7@1 created")
	eventually(t, "three watchers are counted", func() bool { return f.server.metrics.watchers.Load() == 3 })
	f.conn.Close()
	eventually(t, "none is left", func() bool { return f.server.metrics.watchers.Load() == 0 })
}

func TestWatchStartsInThePastAndFilters(t *testing.T) {
	f := startFront(t)
	f.put("a", "1")
	f.put("b", "2")
	_, err := f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("a")})
	wantOK(t, err)
	all := pb.WatchCreateRequest{RangeEnd: []byte{0}, StartRevision: 2} // an empty key means the first key
	for _, c := range []struct {
		filters []pb.WatchCreateRequest_FilterType
		want    string
	}{
		{nil, "0@4 PUT a=1@2 PUT b=2@3 DELETE a=@4"},
		{[]pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}, "0@4 DELETE a=@4"},
		{[]pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}, "0@4 PUT a=1@2 PUT b=2@3"},
	} {
		w := f.openWatch(f.ctx())
		r := &pb.WatchCreateRequest{Key: all.Key, RangeEnd: all.RangeEnd, StartRevision: 2, Filters: c.filters}
		w.create(r)
		w.want("0@4 created")
		// Events of several revisions may share a response.
		var events []string
		revision := ""
		for len(events) < strings.Count(c.want, "=") {
			resp := w.next()
			for _, e := range resp.Events {
				events = append(events, fmt.Sprintf("%v %s=%s@%d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision))
			}
			revision = fmt.Sprintf("0@%d ", resp.Header.Revision)
		}
		wantEqual(t, "events", revision+strings.Join(events, " "), c.want)
	}
}

func TestWatchSeesLeaseEnd(t *testing.T) {
	t.Parallel()
	f := startFront(t)
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte{0}})
	w.want("0@1 created")
	f.grant(1, 1)
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a"), Lease: 1})
	wantOK(t, err)
	wantEqual(t, "lease of the key", w.want("0@2 PUT a=@2").Events[0].Kv.Lease, 1)
	w.want("0@3 DELETE a=@3")
}

func TestWatchProgressIsSentOnRequestAndAtIntervals(t *testing.T) {
	cfg := anyPort()
	cfg.ProgressInterval = 50 * time.Millisecond
	f := startWith(t, cfg, nil)
	w := f.openWatch(f.ctx())
	w.progress()
	w.want("-1@1")
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	w.want("0@1 created")
	f.put("x", "not watched")
	w.progress()
	w.want("-1@2")
	// Only a watcher that requested it receives progress at intervals.
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), ProgressNotify: true})
	w.want("1@2 created")
	w.want("1@2")
	w.want("1@2")
}

func TestLargeWatchResponsesAreFragmented(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequestBytes = 1000
	f := startWith(t, cfg, nil)
	f.grant(60, 1)
	for i := range 20 {
		_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: fmt.Appendf(nil, "%0100d", i), Lease: 1})
		wantOK(t, err)
	}
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{RangeEnd: []byte{0}, Fragment: true})
	w.want("0@21 created")
	_, err := f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 1})
	wantOK(t, err)
	events, fragments := 0, 0
	for {
		resp := w.next()
		events += len(resp.Events)
		if !resp.Fragment {
			break
		}
		fragments++
	}
	wantEqual(t, "events", events, 20)
	if fragments == 0 {
		t.Error("20 events of 100 bytes came in one piece of at most 1000")
	}
}

func TestWatchersOfAStreamAreBounded(t *testing.T) {
	cfg := anyPort()
	cfg.MaxWatchers = 2
	f := startWith(t, cfg, nil)
	w := f.openWatch(f.ctx())
	for range 3 {
		w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	}
	w.want("0@1 created")
	w.want("1@1 created")
	w.want("-1@1 created canceled (" + "etcdserver: too many watchers on this connection" + ")")
	w.cancel(0)
	w.want("0@1 canceled")
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	wantEqual(t, "canceled", w.next().Canceled, false)
}

// A client creates and cancels watchers without reading the answers. The server stops reading from it.
func TestWatchStopsReadingFromSlowClient(t *testing.T) {
	t.Parallel()
	f := startFront(t)
	w := f.openWatch(f.ctx())
	var sent atomic.Int64
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		r := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")},
		}}
		for w.Send(r) == nil {
			sent.Add(1)
		}
	}()
	last := int64(-1)
	eventually(t, "the client can send no more", func() bool {
		now := sent.Load()
		still := now == last && now > 1024
		last = now
		time.Sleep(300 * time.Millisecond)
		return still
	})
	for range last {
		w.next()
	}
	eventually(t, "the client sends again", func() bool { return sent.Load() > last })
	f.conn.Close()
	<-sending
}

// A client that has closed its sending side still receives events.
func TestWatchGoesOnAfterLastRequest(t *testing.T) {
	f := startFront(t)
	w := f.openWatch(f.ctx())
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	w.want("0@1 created")
	wantOK(t, w.CloseSend())
	f.put("a", "1")
	w.want("0@2 PUT a=1@2")
}

func TestRequireLeaderEndsStreamsWithoutLeader(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	f := startWith(t, anyPort(), func(n *node.Node) member {
		return &faulty{Node: n, serving: func() error {
			if lost.Load() {
				return replica.ErrNoLeader
			}
			return n.Serving()
		}}
	})
	patient, impatient := f.openWatch(f.ctx()), f.openWatch(needLeader(f.ctx()))
	for _, w := range []watchClient{patient, impatient} {
		w.create(&pb.WatchCreateRequest{Key: []byte("a")})
		w.want("0@1 created")
	}
	get := func(ctx context.Context) error {
		_, err := f.kv.Range(ctx, &pb.RangeRequest{Key: []byte("a"), Serializable: true})
		return err
	}
	wantOK(t, get(needLeader(f.ctx())))
	lost.Store(true)
	wantStatus(t, get(needLeader(f.ctx())), rpctypes.ErrGRPCNoLeader)
	wantOK(t, get(f.ctx()))
	_, err := impatient.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	late := f.openWatch(needLeader(f.ctx()))
	_, err = late.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	f.put("a", "1")
	patient.want("0@2 PUT a=1@2")
}
