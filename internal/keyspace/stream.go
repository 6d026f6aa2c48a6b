package keyspace

import (
	"context"
	"sync"
)

// StreamLimits bound what a stream holds for a slow reader. Zero fields have
// the defaults.
type StreamLimits struct {
	Events int // queued; DefaultStreamEvents
	Bytes  int // of queued events, roughly; DefaultStreamBytes
	// FragmentBytes is what a response to a watcher that asked for fragments
	// is cut at, roughly; DefaultFragmentBytes. An event is never cut.
	FragmentBytes int
	// Turns, unless nil, are taken to read history, by the client that Client names.
	Turns  *Turns
	Client string
}

// What StreamLimits are if nothing is said.
const (
	DefaultStreamEvents  = 4096
	DefaultStreamBytes   = 4 << 20
	DefaultFragmentBytes = 3 << 19 // etcd's request limit, 1.5 MiB
)

// How much history is read before something else gets its turn.
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

// Stream is what one client watches. Next is called by one goroutine at a
// time, all else from any.
//
// A watcher is live, and gets its events from Publish through the queue, or
// it lags, and Next reads them from the database for it. It lags after its
// creation if it starts in the past, and from the revision on for which the
// queue has no room. Next catches up with one only when nothing of it is left
// in the queue, so that its events stay in order; and makes it live only while
// no change can be published, so that none is lost between.
type Stream struct {
	hub    *Hub
	limits StreamLimits
	wake   chan struct{} // holds one if Next has something new to look at

	mu       sync.Mutex
	closed   bool
	watchers map[int64]*watcher
	nextID   int64
	queue    queue
	lagging  []*watcher // in the order they get their turns
	progress progressState

	// Only of Next's goroutine.
	ready   []WatchResponse // to be handed out next
	pending *unfinished     // to be made ready before anything else
	turn    bool            // whose turn it is: the queue or the lagging
}

// progressState is how far manual progress requests are answered.
type progressState struct {
	wanted bool // one waits for lagging watchers or for the one queued
	queued bool // an answer is in the queue
}

// NewStream returns a stream without watchers. It must be closed.
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

// Watch adds a watcher. Whether it is taken or refused, Next will tell, in
// the order of calls; the id and error are for the caller's own information.
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
	// In w's name, so that no history of it comes before.
	st.push(entry{w: w, response: WatchResponse{WatchID: w.id, Revision: current, Created: true}})
	if w.live = w.next > st.hub.revision; !w.live {
		st.lagging = append(st.lagging, w)
	}
	return w.id, nil
}

// admit checks a request and gives the watcher its id.
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

// Refuse lets Next tell, in its turn, that a watch was refused for a reason
// that isn't the key space's, such as a missing permission.
func (st *Stream) Refuse(reason string) {
	current := st.hub.s.Revision()
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.closed {
		st.push(entry{response: refusal(reason, current)})
	}
}

// Cancel ends a watcher. It returns false, and Next tells nothing, if there
// is none with this id.
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

// drop forgets a watcher. Both locks are held.
func (st *Stream) drop(w *watcher) {
	w.removed = true
	delete(st.watchers, w.id)
	st.lagging = without(st.lagging, w)
	st.hub.remove(w)
}

// RequestProgress lets Next tell the revision up to which every event of
// every watcher was told, as soon as no watcher lags.
func (st *Stream) RequestProgress() {
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.progress.wanted = true
	st.answerProgress()
}

// answerProgress queues an answer if one is wanted and can be given: all live
// watchers have everything up to Hub.revision in front of it in the queue.
// Both locks are held.
func (st *Stream) answerProgress() {
	p := &st.progress
	if st.closed || !p.wanted || p.queued || len(st.lagging) > 0 {
		return
	}
	p.wanted, p.queued = false, true
	st.push(entry{response: WatchResponse{WatchID: NoWatch, Revision: st.hub.revision}, progress: true})
}

// Tick is called at regular intervals. It lets Next tell the progress of each
// watcher that asked for that and had nothing to tell since the last Tick.
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

// offer queues what Publish collected for a watcher, or lets it lag. Hub.mu
// is held.
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

// wait returns when there may be something new.
func (st *Stream) wait(ctx context.Context) error {
	select {
	case <-st.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
