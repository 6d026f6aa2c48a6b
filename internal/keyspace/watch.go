package keyspace

import "bytes"

// WatchRequest watches the events of an interval, given as in RangeRequest except that an empty Key means "\x00".
type WatchRequest struct {
	ID             int64 // 0: the next free one from 0 up
	Key, End       []byte
	StartRevision  int64 // 0: events from now on
	PrevKV         bool  // include the previous KV
	NoPut          bool
	NoDelete       bool
	ProgressNotify bool // see Stream.Tick
	Fragment       bool // see StreamLimits.FragmentBytes
}

// WatchResponse is a response of a stream to its client.
type WatchResponse struct {
	WatchID int64 // NoWatch: no particular watcher
	// Revision is the revision of the last event, or the current one if the watcher catches up: more events up to it may
	// follow. In a progress response it is the revision up to which all events were delivered.
	Revision        Revision
	Created         bool
	Canceled        bool // with Created: the watch was refused
	CancelReason    string
	CompactRevision int64 // above 0 if the watch was cancelled because its next revision was compacted
	Fragment        bool  // the next response continues the events
	Events          []Event
}

// NoWatch is the ID in responses that concern no particular watcher.
const NoWatch int64 = -1

// reasonCompacted is etcd's reason for refusing a negative start revision.
const reasonCompacted = "etcdserver: mvcc: required revision has been compacted"

// watcher is one watch. The fields of the first group are constant.
type watcher struct {
	stream  *Stream
	id      int64
	in      span
	request WatchRequest

	// The fields below are guarded by Hub.mu.

	order uint64 // number of the watcher, by creation
	at    int    // index in its list, which is in Hub.keys or Hub.ranges
	// fresh are the events of one revision that Publish has collected, and freshBytes is their size.
	fresh      []Event
	freshBytes int

	// The fields below are written with Hub.mu and Stream.mu held, so either is enough to read them.

	// live is set if events from next on come from Publish, and unset if they come from the database. It is only set
	// when next > Hub.revision.
	live    bool
	removed bool
	// next is the first revision whose events were neither queued nor returned.
	next Revision

	// The fields below are guarded by Stream.mu.

	queued   int  // number of its entries in the queue
	active   bool // something was queued or returned since the last Tick
	progress bool // the queue holds a progress entry of it
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
