package keyspace

import (
	"context"
	"errors"
)

// Next waits for the next response. Only one goroutine at a time may call it. It returns errors of the database
// unchanged. After an error, including that of ctx, the next call continues where this one stopped.
func (st *Stream) Next(ctx context.Context) (WatchResponse, error) {
	for len(st.ready) == 0 {
		if st.pending == nil {
			st.giveRoom()
		}
		if ctx.Err() != nil {
			return WatchResponse{}, context.Cause(ctx)
		}
		err := st.advance(ctx)
		if errors.Is(err, ErrReplaced) {
			err = st.wait(ctx) // Hub.Reload wakes every stream
		}
		if err != nil {
			return WatchResponse{}, err
		}
	}
	return st.takeReady(), nil
}

// unfinished is a response whose events may still lack their previous values.
type unfinished struct {
	w        *watcher
	response *WatchResponse
}

// advance makes one step towards a ready response.
func (st *Stream) advance(ctx context.Context) error {
	if st.pending != nil {
		return st.complete(ctx)
	}
	r, w, err := st.choose()
	if err != nil {
		return err
	}
	if r == nil && w == nil {
		return st.wait(ctx)
	}
	if r == nil {
		if r, err = st.catchUp(ctx, w); r == nil || err != nil {
			return err
		}
	}
	st.pending = &unfinished{w, r}
	return st.complete(ctx)
}

// takeReady removes and returns the first ready response.
func (st *Stream) takeReady() WatchResponse {
	r := st.ready[0]
	st.ready[0] = WatchResponse{}
	if st.ready = st.ready[1:]; len(st.ready) == 0 {
		st.ready = nil
	}
	return r
}

// choose returns the next response from the queue or, alternating with that, a lagging watcher to catch up. It
// returns neither if there is nothing to do. A response with events comes with its watcher.
func (st *Stream) choose() (*WatchResponse, *watcher, error) {
	answered := false
	defer func() {
		if answered {
			st.answerAgain()
		}
	}()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, nil, ErrStreamClosed
	}
	st.turn = !st.turn
	if st.turn || st.queue.empty() {
		if w := st.nextLagging(); w != nil {
			return nil, w, nil
		}
	}
	if st.queue.empty() {
		return nil, nil, nil
	}
	e := st.pop()
	if e.progress && e.w == nil {
		st.progress.queued = false
		answered = st.progress.wanted
	}
	return &e.response, e.w, nil
}

// answerAgain answers a progress request that arrived while the answer to an earlier one was queued.
func (st *Stream) answerAgain() {
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.answerProgress()
}

// nextLagging returns the next watcher to catch up, and moves it to the end of the list. st.mu is held.
func (st *Stream) nextLagging() *watcher {
	for i, w := range st.lagging {
		if w.queued > 0 {
			continue
		}
		copy(st.lagging[i:], st.lagging[i+1:])
		st.lagging[len(st.lagging)-1] = w
		return w
	}
	return nil
}

// pop takes an entry from the queue, and joins it with the following entries of the same watcher. st.mu is held.
func (st *Stream) pop() entry {
	e := st.queue.pop()
	if e.w == nil {
		return e
	}
	e.w.queued--
	if e.progress {
		e.w.progress = false
	}
	if len(e.response.Events) == 0 {
		return e
	}
	for !st.queue.empty() && len(e.response.Events) < portionEvents && e.bytes < portionBytes {
		next := st.queue.front()
		if next.w != e.w || len(next.response.Events) == 0 {
			break
		}
		e.w.queued--
		e.bytes += next.bytes
		e.response.Revision = next.response.Revision
		e.response.Events = append(e.response.Events, next.response.Events...)
		st.queue.pop()
	}
	return e
}

// portionEvents and portionBytes bound, roughly, one response that is made of several revisions. When a watcher catches
// up, a response may join up to joinedPortions as long as there is memory for them (see StreamLimits.Room).
const (
	portionEvents  = 1000
	portionBytes   = 1 << 20
	joinedPortions = 16
)

// readPast reads the next part of the history for a lagging watcher. As in etcd, the number of events bounds it rather
// than their size, so it joins portions that are full of bytes.
func (st *Stream) readPast(ctx context.Context, w *watcher) (past, error) {
	size := portion{
		events:  min(portionEvents, st.limits.Events),
		bytes:   min(portionBytes, st.limits.Bytes),
		scanned: historyScan,
	}
	// Only this goroutine changes w.next while w lags.
	all, err := st.hub.s.pastOf(ctx, w, w.next, size)
	for joined := 1; err == nil && all.cut && len(all.events) < size.events && joined < joinedPortions && st.takeRoom(size.bytes); joined++ {
		more, err := st.hub.s.pastOf(ctx, w, all.next, size)
		if err != nil || more.compacted > 0 {
			break // the watcher receives what was read, and the next response says the rest
		}
		// The shared portion belongs to other watchers too, and it has no capacity beyond its length.
		all.events = append(all.events, more.events...)
		all.next, all.cut = more.next, more.cut
	}
	return all, err
}

// takeRoom reports whether the response that is being read may grow by a number of bytes.
func (st *Stream) takeRoom(bytes int) bool {
	if st.limits.Room == nil || st.limits.Room.Take(bytes) != nil {
		return false
	}
	st.room += bytes
	return true
}

// giveRoom returns the room of the responses that the caller of Next has taken.
func (st *Stream) giveRoom() {
	if st.room > 0 {
		st.limits.Room.Give(st.room)
		st.room = 0
	}
}

// catchUp reads a portion of the history for a lagging watcher that has nothing queued.
func (st *Stream) catchUp(ctx context.Context, w *watcher) (*WatchResponse, error) {
	if err := st.hub.hold(); err != nil {
		return nil, err
	}
	h, err := st.readPast(st.withTurns(ctx), w)
	st.hub.release()
	if err != nil {
		return nil, err
	}
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	defer st.answerProgress()
	switch {
	case w.removed:
		return nil, nil
	case h.compacted > 0:
		st.drop(w)
		return &WatchResponse{
			WatchID: w.id, Revision: st.hub.s.Revision(), Canceled: true, CompactRevision: h.compacted,
		}, nil
	}
	if w.next = h.next; w.next > st.hub.revision {
		w.live = true
		st.lagging = without(st.lagging, w)
	}
	if len(h.events) == 0 {
		return nil, nil
	}
	w.active = true
	// As in etcd, the response says how far the watcher is behind.
	current := max(h.events[len(h.events)-1].KV.ModRevision, st.hub.revision)
	return &WatchResponse{WatchID: w.id, Revision: current, Events: h.events}, nil
}

// withTurns makes reads under the context wait for turns, if the stream's limits ask for that.
func (st *Stream) withTurns(ctx context.Context) context.Context {
	if st.limits.Turns == nil {
		return ctx
	}
	return InTurn(ctx, st.limits.Turns, st.limits.Client)
}

// complete finishes the pending response: it adds previous values and cuts the response into fragments, each only if
// the watcher asked for it.
func (st *Stream) complete(ctx context.Context) error {
	w, r := st.pending.w, st.pending.response
	if w != nil && w.request.PrevKV && len(r.Events) > 0 {
		// Published events are shared by all watchers, so change a copy.
		events := append([]Event(nil), r.Events...)
		if err := st.hub.hold(); err != nil {
			return err
		}
		err := st.hub.s.fillPrev(st.withTurns(ctx), events)
		st.hub.release()
		if err != nil {
			return err
		}
		r.Events = events
	}
	st.pending = nil
	if w == nil || !w.request.Fragment {
		st.ready = append(st.ready, *r)
		return nil
	}
	st.fragment(r)
	return nil
}

func (st *Stream) fragment(r *WatchResponse) {
	for rest := r.Events; ; {
		n, size := 0, 0
		for n < len(rest) && (n == 0 || size+rest[n].fullSize() <= st.limits.FragmentBytes) {
			size += rest[n].fullSize()
			n++
		}
		part := *r
		part.Events, rest = rest[:n:n], rest[n:]
		part.Fragment = len(rest) > 0
		st.ready = append(st.ready, part)
		if len(rest) == 0 {
			return
		}
	}
}

// fullSize is the event's size including its previous value.
func (e *Event) fullSize() int {
	n := e.size()
	if e.PrevKV != nil {
		n += len(e.PrevKV.Key) + len(e.PrevKV.Value) + eventOverhead
	}
	return n
}

// fillPrev adds to each event the key's previous state, unless that is compacted.
func (s *Store) fillPrev(ctx context.Context, events []Event) error {
	for i := range events {
		e := &events[i]
		if e.Type == EventPut && e.KV.CreateRevision == e.KV.ModRevision {
			continue
		}
		if e.KV.ModRevision-1 < s.CompactRevision() {
			continue // another watcher may have left the compacted state among the shared reads
		}
		prev, err := s.prevOf(ctx, e)
		if errors.Is(err, ErrCompacted) {
			continue
		}
		if err != nil {
			return err
		}
		e.PrevKV = prev
	}
	return nil
}
