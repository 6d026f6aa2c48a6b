package etcdapi

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/duplex"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// maxWatchAnswers bounds the unsent answers to creates and cancels of one stream. At the bound the server stops reading
// from the client. The stream itself bounds the events.
const maxWatchAnswers = 1024

// reasonTooManyWatchers has no counterpart in etcd, which does not bound watchers.
const reasonTooManyWatchers = "etcdserver: too many watchers on this connection"

// watchService is etcd's Watch.
type watchService struct {
	pb.UnimplementedWatchServer
	*API
}

type watchServerStream = grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]

// Watch serves one stream of watchers until the client ends it. One goroutine reads requests. This one sends the
// responses of the [keyspace.Stream] between them, in its order.
func (w *watchService) Watch(stream watchServerStream) error {
	ctx, end := w.cfg.Lifetime.Stream(admission.WithPin(stream.Context()), lifetime.AnyLeader)
	defer end(nil)
	defer w.cfg.Metrics.OpenWatch()()

	room, release := w.cfg.Room(ctx)
	defer release()
	watchers := w.cfg.Member.NewWatchStream(keyspace.StreamLimits{
		FragmentBytes: w.cfg.MaxRequestBytes, Room: room, Turns: w.cfg.Bulk, Client: string(admission.IdentityOf(stream.Context())),
	})
	defer watchers.Close()
	f := &watchFront{s: w.API, stream: stream, watchers: watchers, room: make(chan struct{}, 1), rights: newWatchRights(w.cfg.Guard, watchers)}
	defer func() { w.cfg.Metrics.AddWatchers(-f.watching.Load()) }()
	connection, leave := w.cfg.Watchers.Join(ctx)
	f.connection = connection
	defer leave()
	defer f.closeAdmission()
	w.cfg.Lifetime.Go(func() {
		// A client that has no more requests still receives its events.
		if err := f.read(ctx); !errors.Is(err, io.EOF) {
			end(err)
		}
	})
	err := f.serve(ctx)
	if errors.Is(err, context.Canceled) {
		return rpctypes.ErrGRPCWatchCanceled
	}
	return err
}

// watchFront is one watch stream of one client.
type watchFront struct {
	s        *API
	stream   watchServerStream
	watchers *keyspace.Stream
	room     chan struct{} // wakes the reading side after an answer was sent; capacity 1

	unanswered atomic.Int64                  // creates and cancels that were read and not answered; ≤ maxWatchAnswers
	watching   atomic.Int64                  // watchers that the client knows
	connection *admission.ConnectionWatchers // counts admitted over all streams of the connection
	rights     *watchRights
	ticking    bool // used only by the reading side

	mu       sync.Mutex
	admitted int64 // watchers that were accepted, and whose end was not sent
	ended    bool
}

// read carries out requests. serve sends the responses.
func (f *watchFront) read(ctx context.Context) error {
	for {
		req, err := f.stream.Recv()
		if err != nil {
			return err
		}
		for f.unanswered.Load() >= maxWatchAnswers {
			select {
			case <-f.room:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		// Requests that this server does not know are ignored, as in etcd, because they do not concern the other
		// watchers.
		switch r := req.GetRequestUnion().(type) {
		case *pb.WatchRequest_CreateRequest:
			if r.CreateRequest != nil {
				f.create(ctx, r.CreateRequest)
			}
		case *pb.WatchRequest_CancelRequest:
			if r.CancelRequest != nil {
				f.cancel(r.CancelRequest.WatchId)
			}
		case *pb.WatchRequest_ProgressRequest:
			f.watchers.RequestProgress()
		}
	}
}

func (f *watchFront) create(ctx context.Context, r *pb.WatchCreateRequest) {
	f.unanswered.Add(1)
	if !f.admit() {
		f.s.cfg.Metrics.Refuse(admission.ReasonWatchers)
		f.watchers.Refuse(reasonTooManyWatchers)
		return
	}
	req := keyspace.WatchRequest{
		ID: r.WatchId, Key: r.Key, End: r.RangeEnd, StartRevision: r.StartRevision,
		PrevKV: r.PrevKv, ProgressNotify: r.ProgressNotify, Fragment: r.Fragment,
	}
	if r.StartRevision >= 0 { // otherwise the watchers refuse it, as in etcd
		if err := f.rights.check(ctx, req.Key, req.End); err != nil {
			_, answer := translate(err)
			f.s.cfg.Metrics.Refuse(reasonDenied)
			f.discharge()
			f.watchers.Refuse(answer.Error())
			return
		}
		if err := f.s.cfg.Guard.CountWatcher(ctx, f.connection); err != nil {
			reason, answer := translate(err)
			f.s.cfg.Metrics.Refuse(reason)
			f.discharge()
			f.watchers.Refuse(answer.Error())
			return
		}
	}
	for _, filter := range r.Filters {
		switch filter {
		case pb.WatchCreateRequest_NOPUT:
			req.NoPut = true
		case pb.WatchCreateRequest_NODELETE:
			req.NoDelete = true
		}
	}
	// The client receives the result, and also an error, through Next.
	if err := f.rights.watch(req); err != nil {
		f.discharge()
		return
	}
	if r.ProgressNotify && !f.ticking {
		f.ticking = true
		f.s.cfg.Lifetime.Go(func() { f.tick(ctx) })
	}
}

// admit counts one more watcher, and reports false at the bound. The watcher is discharged when its end was sent. After
// the stream has ended, admit always reports false.
func (f *watchFront) admit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || !f.connection.Admit() {
		return false
	}
	f.admitted++
	return true
}

func (f *watchFront) discharge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.admitted--
		f.connection.Discharge(1)
	}
}

// closeAdmission discharges all watchers.
func (f *watchFront) closeAdmission() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.connection.Discharge(f.admitted)
	f.ended = true
}

func (f *watchFront) cancel(id int64) {
	f.unanswered.Add(1)
	if !f.rights.cancel(id) {
		f.unanswered.Add(-1) // there will be no answer
	}
}

// tick sends progress to idle watchers at intervals. The intervals vary, so that streams which opened together after a
// restart spread out.
func (f *watchFront) tick(ctx context.Context) {
	interval := f.s.cfg.ProgressInterval
	ticker := time.NewTicker(backoff.Between(interval, interval+interval/10, rand.Uint64()))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.watchers.Tick()
		case <-ctx.Done():
			return
		}
	}
}

// serve sends responses in the order of the stream.
func (f *watchFront) serve(ctx context.Context) error {
	for {
		r, err := f.watchers.Next(ctx)
		if err != nil {
			return err
		}
		if !f.permits(ctx, &r) {
			continue
		}
		if err := f.stream.Send(f.response(&r)); err != nil {
			return err
		}
		f.account(&r)
	}
}

// account updates the counts after a response was sent.
func (f *watchFront) account(r *keyspace.WatchResponse) {
	change := int64(0)
	switch {
	case r.Created && !r.Canceled:
		change = 1
	case r.Canceled && !r.Created:
		change = -1
		f.discharge()
	}
	if change != 0 {
		f.watching.Add(change)
		f.s.cfg.Metrics.AddWatchers(change)
	}
	// The end of a watcher whose history was compacted answers no request.
	if r.Created || (r.Canceled && r.CompactRevision == 0) {
		f.unanswered.Add(-1)
		duplex.Notify(f.room)
	}
}

func (f *watchFront) response(r *keyspace.WatchResponse) *pb.WatchResponse {
	return &pb.WatchResponse{
		Header:  headerAt(f.s.cfg.Member.Header(), r.Revision),
		WatchId: r.WatchID, Created: r.Created, Canceled: r.Canceled,
		CompactRevision: r.CompactRevision, CancelReason: r.CancelReason,
		Fragment: r.Fragment, Events: watchEvents(r.Events),
	}
}

func watchEvents(events []keyspace.Event) []*mvccpb.Event {
	if len(events) == 0 {
		return nil
	}
	out := make([]*mvccpb.Event, len(events))
	values := make([]struct {
		event mvccpb.Event
		kv    mvccpb.KeyValue
	}, len(events)) // one allocation for all
	for i := range events {
		v := &values[i]
		setKeyValue(&v.kv, &events[i].KV)
		v.event.Type, v.event.Kv = mvccpb.Event_EventType(events[i].Type), &v.kv
		v.event.PrevKv = keyValue(events[i].PrevKV)
		out[i] = &v.event
	}
	return out
}
