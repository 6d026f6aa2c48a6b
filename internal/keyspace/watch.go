package keyspace

import "bytes"

// WatchRequest asks for the events of an interval, which is given as in
// RangeRequest except that an empty Key stands for "\x00".
type WatchRequest struct {
	ID             int64 // 0: the next free one from 0 up
	Key, End       []byte
	StartRevision  int64 // 0: events after now
	PrevKV         bool  // with what was there before
	NoPut          bool
	NoDelete       bool
	ProgressNotify bool // see Stream.Tick
	Fragment       bool // see StreamLimits.FragmentBytes
}

// WatchResponse is what a stream tells its client.
type WatchResponse struct {
	WatchID int64 // NoWatch: none in particular
	// Revision is, of events, that of the last one; without events, the one
	// up to which everything was told if no watcher is created or canceled.
	Revision        Revision
	Created         bool
	Canceled        bool // with Created: refused
	CancelReason    string
	CompactRevision int64 // above 0 if it was canceled because its next revision was compacted
	Fragment        bool  // the events go on in the next response
	Events          []Event
}

// NoWatch is the id in responses that concern no watcher in particular.
const NoWatch int64 = -1

// reasonCompacted is how etcd refuses a negative start revision.
const reasonCompacted = "etcdserver: mvcc: required revision has been compacted"

// watcher is one watch. Constant are the fields of the first group.
type watcher struct {
	stream  *Stream
	id      int64
	in      span
	request WatchRequest

	// Guarded by Hub.mu.

	order uint64 // of watchers, by creation
	at    int    // index in the one list of Hub.keys or Hub.ranges that it is in
	// What Publish collects of one revision.
	fresh      []Event
	freshBytes int

	// Written with Hub.mu and Stream.mu held, so either is enough to read.

	// live: events from next on come from Publish; else from the database.
	// Becomes true only if next > Hub.revision.
	live    bool
	removed bool
	// next: all events below it were queued or handed out, none from it on.
	next Revision

	// Guarded by Stream.mu.

	queued   int  // entries of it in the queue
	active   bool // something was handed out or queued since the last Tick
	progress bool // a progress entry of it is in the queue
}

func newWatcher(st *Stream, req WatchRequest) *watcher {
	key := req.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	return &watcher{stream: st, in: spanOf(bytes.Clone(key), bytes.Clone(req.End)), request: req}
}

func (w *watcher) keeps(t EventType) bool {
	if t == EventDelete {
		return !w.request.NoDelete
	}
	return !w.request.NoPut
}
