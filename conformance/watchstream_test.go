package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// watchStream is one bare Watch stream, so that tests see every response as it
// came: clientv3 merges, hides and repairs.
type watchStream struct {
	t         *testing.T
	s         *server
	stream    pb.Watch_WatchClient
	responses chan *pb.WatchResponse // closed when the stream has ended
	err       error                  // valid from then on
}

func (s *server) watch() *watchStream {
	s.t.Helper()
	return s.watchIn(s.context())
}

func (s *server) watchIn(ctx context.Context) *watchStream {
	s.t.Helper()
	stream, err := s.stubs().watch.Watch(ctx)
	wantOK(s.t, "opening a watch stream", err)
	// Large enough that the reader below never waits for a test that has ended.
	w := &watchStream{t: s.t, s: s, stream: stream, responses: make(chan *pb.WatchResponse, 10000)}
	go func() {
		defer close(w.responses)
		for {
			resp, err := stream.Recv()
			if err != nil {
				w.err = err
				return
			}
			w.responses <- resp
		}
	}()
	return w
}

func (w *watchStream) send(req *pb.WatchRequest) {
	w.t.Helper()
	wantOK(w.t, "sending on a watch stream", w.stream.Send(req))
}

// request asks for a watcher without waiting for the answer.
func (w *watchStream) request(req *pb.WatchCreateRequest) {
	w.t.Helper()
	w.s.settle()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}})
}

// create asks for a watcher and returns the answer. It has to come next, but for
// late answers to the requests for progress of an earlier until.
func (w *watchStream) create(req *pb.WatchCreateRequest) *pb.WatchResponse {
	w.t.Helper()
	w.request(req)
	resp := w.next()
	for isProgress(resp) {
		resp = w.next()
	}
	if !resp.Created || len(resp.Events) != 0 {
		w.t.Fatalf("want a created response without events, got %v", resp)
	}
	return resp
}

// watchKey is create for the plainest of watchers.
func (w *watchStream) watchKey(key, end string, from int64) int64 {
	w.t.Helper()
	resp := w.create(&pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end), StartRevision: from})
	if resp.Canceled {
		w.t.Fatalf("watcher refused: %v", resp)
	}
	return resp.WatchId
}

func (w *watchStream) cancel(id int64) {
	w.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (w *watchStream) requestProgress() {
	w.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (w *watchStream) next() *pb.WatchResponse {
	w.t.Helper()
	return w.nextWithin(waitLimit)
}

func (w *watchStream) nextWithin(limit time.Duration) *pb.WatchResponse {
	w.t.Helper()
	select {
	case resp, ok := <-w.responses:
		if !ok {
			w.t.Fatalf("the watch stream has ended: %v", w.err)
		}
		return resp
	case <-time.After(limit):
		w.t.Fatalf("no watch response within %v", limit)
	}
	return nil
}

// until returns all responses that precede the server's word that no event up
// to revision is outstanding on this stream. It is how a test shows that
// something was *not* delivered.
func (w *watchStream) until(revision int64) []*pb.WatchResponse {
	w.t.Helper()
	// A progress request that finds a watcher behind is dropped, so ask again.
	deadline := time.After(waitLimit)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	w.requestProgress()
	var before []*pb.WatchResponse
	for {
		select {
		case resp, ok := <-w.responses:
			if !ok {
				w.t.Fatalf("the watch stream has ended: %v", w.err)
			}
			if !isProgress(resp) {
				before = append(before, resp)
			} else if resp.Header.Revision >= revision {
				return before
			}
		case <-again.C:
			w.requestProgress()
		case <-deadline:
			w.t.Fatalf("no progress to revision %d within %v", revision, waitLimit)
		}
	}
}

func isProgress(r *pb.WatchResponse) bool {
	return len(r.Events) == 0 && !r.Created && !r.Canceled
}

// eventsUntil is until for streams whose only responses are events: what each
// watcher was sent, in order.
func (w *watchStream) eventsUntil(revision int64) map[int64]string {
	w.t.Helper()
	collected := make(map[int64][]string)
	for _, resp := range w.until(revision) {
		if resp.Created || resp.Canceled {
			w.t.Fatalf("unexpected response %v", resp)
		}
		collected[resp.WatchId] = append(collected[resp.WatchId], showEvents(resp.Events))
	}
	out := make(map[int64]string)
	for id, events := range collected {
		out[id] = strings.Join(events, "\n")
	}
	return out
}

// showEvents writes events with everything they carry, one line each.
func showEvents(events []*mvccpb.Event) string {
	out := make([]string, 0, len(events))
	for _, e := range events {
		line := fmt.Sprintf("%v %s", e.Type, show(e.Kv))
		if e.PrevKv != nil {
			line += " before: " + show(e.PrevKv)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
