package keyspace

import (
	"context"
	"sync"
)

// StreamLimits bound the memory of a stream with a slow reader. Zero fields have the defaults.
type StreamLimits struct {
	Events int // number of queued events; 0: DefaultStreamEvents
	Bytes  int // approximate size of queued events; 0: DefaultStreamBytes
	// FragmentBytes is the approximate size at which a response is cut if its watcher asked for fragments; 0:
	// DefaultFragmentBytes. An event is never cut.
	FragmentBytes int
	// Room has the memory for responses of more than about a megabyte to a watcher that catches up. Next takes of it, and
	// gives back when it is called after the last part of the response; Close gives nothing back. nil has none: every
	// response is cut at about a megabyte.
	Room Room
	// Turns, if not nil, makes reads of history take turns as Client.
	Turns  *Turns
	Client string
}

// The default StreamLimits.
const (
	DefaultStreamEvents  = 4096
	DefaultStreamBytes   = 4 << 20
	DefaultFragmentBytes = 3 << 19 // etcd's request limit, 1.5 MiB
)

// historyScan is the number of events that one read of history scans at most.
const historyScan = 4096

func (l StreamLimits) withDefaults() StreamLimits {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&l.Events, DefaultStreamEvents},
		{&l.Bytes, DefaultStreamBytes},
		{&l.FragmentBytes, DefaultFragmentBytes},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return l
}

// Stream is the set of watchers of one client. One goroutine at a time may call Next; any goroutine may call the
// other methods.
//
// A live watcher receives its events from Publish through the queue. A lagging watcher receives them from Next, which
// reads them from the database. A watcher lags if it starts in the past, or from the revision on for which the queue
// had no room.
//
// Next catches up a lagging watcher only when the queue holds nothing of it, so that its events stay in order. It
// makes the watcher live only while no change can be published, so that no event is lost in between.
type Stream struct {
	hub    *Hub
	limits StreamLimits
	wake   chan struct{} // capacity one; sent to when Next has something new to do

	mu       sync.Mutex
	closed   bool
	watchers map[int64]*watcher
	nextID   int64
	queue    queue
	lagging  []*watcher // in the order of their turns
	progress progressState

	// Only the goroutine of Next uses the fields below.
	ready   []WatchResponse // the next responses to return
	pending *unfinished     // the response to complete before anything else
	turn    bool            // alternates between the queue and the lagging watchers
	room    int             // bytes taken of limits.Room for ready and pending
}

// progressState is the state of answering manual progress requests.
type progressState struct {
	wanted bool // a request waits for lagging watchers, or for the queued answer
	queued bool // an answer is in the queue
}

// NewStream returns a stream without watchers. The caller must close it.
func (h *Hub) NewStream(limits StreamLimits) *Stream {
	st := &Stream{
		hub:      h,
		limits:   limits.withDefaults(),
		wake:     make(chan struct{}, 1),
		watchers: make(map[int64]*watcher),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[st] = struct{}{}
	return st
}

// Watch adds a watcher. Next reports whether it was accepted or refused, in the order of the calls. The returned ID
// and error only inform the caller.
func (st *Stream) Watch(req WatchRequest) (int64, error) {
	w := newWatcher(st, req)
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return NoWatch, ErrStreamClosed
	}
	current := st.hub.s.Revision()
	if reason, err := st.admit(w); err != nil {
		st.push(entry{response: refusal(reason, current)})
		return NoWatch, err
	}
	st.watchers[w.id] = w
	st.hub.add(w)
	if w.next = req.StartRevision; w.next == 0 {
		w.next = current + 1
	}
	// With w set, so that no history of w comes before this response.
	st.push(entry{w: w, response: WatchResponse{WatchID: w.id, Revision: current, Created: true}})
	if w.live = w.next > st.hub.revision; !w.live {
		st.lagging = append(st.lagging, w)
	}
	return w.id, nil
}

// admit checks a request and sets the watcher's ID.
func (st *Stream) admit(w *watcher) (reason string, err error) {
	switch {
	case w.request.StartRevision < 0:
		return reasonCompacted, ErrCompacted
	case w.in.empty():
		return ErrEmptyInterval.Error(), ErrEmptyInterval
	}
	if w.id = w.request.ID; w.id != 0 {
		if st.watchers[w.id] != nil {
			return ErrDuplicateWatch.Error(), ErrDuplicateWatch
		}
		return "", nil
	}
	for st.watchers[st.nextID] != nil {
		st.nextID++
	}
	w.id = st.nextID
	st.nextID++
	return "", nil
}

func refusal(reason string, current Revision) WatchResponse {
	return WatchResponse{WatchID: NoWatch, Revision: current, Created: true, Canceled: true, CancelReason: reason}
}

// Refuse queues a response that refuses a watch for a reason outside the keyspace, such as a missing permission.
func (st *Stream) Refuse(reason string) {
	current := st.hub.s.Revision()
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.closed {
		st.push(entry{response: refusal(reason, current)})
	}
}

// Cancel ends a watcher. If there is none with this ID it returns false and queues no response.
func (st *Stream) Cancel(id int64) bool {
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	w := st.watchers[id]
	if w == nil {
		return false
	}
	st.drop(w)
	st.push(entry{response: WatchResponse{WatchID: id, Revision: st.hub.s.Revision(), Canceled: true}})
	st.answerProgress()
	return true
}

// drop removes a watcher. Hub.mu and st.mu are held.
func (st *Stream) drop(w *watcher) {
	w.removed = true
	delete(st.watchers, w.id)
	st.lagging = without(st.lagging, w)
	st.hub.remove(w)
}

// RequestProgress queues, as soon as no watcher lags, a response with the revision up to which all watchers have
// received all events.
func (st *Stream) RequestProgress() {
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.progress.wanted = true
	st.answerProgress()
}

// answerProgress queues an answer to a progress request if one is wanted and possible. All events of live watchers up
// to Hub.revision precede it in the queue. Hub.mu and st.mu are held.
func (st *Stream) answerProgress() {
	p := &st.progress
	if st.closed || !p.wanted || p.queued || len(st.lagging) > 0 {
		return
	}
	p.wanted, p.queued = false, true
	st.push(entry{response: WatchResponse{WatchID: NoWatch, Revision: st.hub.revision}, progress: true})
}

// Tick queues a progress response for each watcher that asked for them and received nothing since the last Tick. The
// caller calls it at regular intervals.
func (st *Stream) Tick() {
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, id := range sortedIDs(st.watchers) {
		w := st.watchers[id]
		if w.request.ProgressNotify && w.live && !w.active && !w.progress {
			w.progress = true
			st.push(entry{w: w, response: WatchResponse{WatchID: id, Revision: st.hub.revision}, progress: true})
		}
		w.active = false
	}
}

// Close ends the stream and all its watchers. Next returns ErrStreamClosed.
func (st *Stream) Close() {
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.lagging = nil
	for _, w := range st.watchers {
		st.drop(w)
	}
	delete(st.hub.streams, st)
	st.closed, st.queue = true, queue{}
	st.signal()
}

// offer queues the events that Publish collected for a watcher, or makes it lag. Hub.mu is held.
func (st *Stream) offer(w *watcher, rev Revision) {
	events, size := w.fresh, w.freshBytes
	w.fresh, w.freshBytes = nil, 0
	st.mu.Lock()
	defer st.mu.Unlock()
	w.active = true
	if st.queue.events+len(events) > st.limits.Events || st.queue.bytes+size > st.limits.Bytes {
		w.live, w.next = false, rev
		st.lagging = append(st.lagging, w)
		st.signal()
		return
	}
	w.next = rev + 1
	st.push(entry{w: w, response: WatchResponse{WatchID: w.id, Revision: rev, Events: events}, bytes: size})
}

// push queues an entry. st.mu is held.
func (st *Stream) push(e entry) {
	if e.w != nil {
		e.w.queued++
	}
	st.queue.push(e)
	st.signal()
}

func (st *Stream) signal() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// wait waits until there may be something new.
func (st *Stream) wait(ctx context.Context) error {
	select {
	case <-st.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
