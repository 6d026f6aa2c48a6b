package peer

import (
	"sync"
	"time"
)

const (
	// maxBatch bounds the bytes of one message's frames, unless a single frame is larger.
	maxBatch = 256 << 10
	// maxBatchFrames bounds the number of one message's frames.
	maxBatchFrames = 1024
)

// queue holds the frames of one class that wait for a stream to a member.
type queue struct {
	maxFrames, maxBytes int
	// fresh is set for urgent frames: a full queue drops its oldest frame, and frames are queued without a connection.
	fresh bool
	life  time.Duration // age from which a frame is no longer sent; 0: none
	ready chan struct{} // capacity one: there may be frames or a ping to take

	mu      sync.Mutex
	open    bool // there is a connection
	frames  []waiting
	bytes   int
	ping    uint64 // to be sent with the next batch; 0: none
	sent    uint64
	dropped uint64
}

type waiting struct {
	frame []byte
	since time.Time
}

func newQueue(maxFrames, maxBytes int, fresh bool, life time.Duration) *queue {
	return &queue{maxFrames: maxFrames, maxBytes: maxBytes, fresh: fresh, life: life, ready: make(chan struct{}, 1)}
}

func (q *queue) notify() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// push adds a frame. It reports false if a frame was dropped.
func (q *queue) push(frame []byte, now time.Time) (whole bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.fresh && (!q.open || q.full(len(frame))) {
		q.dropped++
		return false
	}
	whole = true
	for q.full(len(frame)) {
		q.drop(1)
		whole = false
	}
	q.frames = append(q.frames, waiting{frame, now})
	q.bytes += len(frame)
	q.notify()
	return whole
}

// full reports whether there is no room for more bytes. There is always room for one frame.
func (q *queue) full(more int) bool {
	return len(q.frames) > 0 && (len(q.frames) >= q.maxFrames || q.bytes+more > q.maxBytes)
}

// drop removes the n oldest frames and counts them as dropped.
func (q *queue) drop(n int) {
	q.dropped += uint64(n)
	q.remove(n)
}

func (q *queue) remove(n int) {
	for i := range n {
		q.bytes -= len(q.frames[i].frame)
		q.frames[i].frame = nil
	}
	q.frames = q.frames[n:]
	if len(q.frames) == 0 {
		q.frames = nil // frees the memory of a burst
	}
}

// take removes the ping and the oldest frames, as many as fit into one message. whole is false if a frame was dropped
// because of its age.
func (q *queue) take(batch [][]byte, now time.Time) (_ [][]byte, ping uint64, whole bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	whole = q.expire(now)
	n, size := 0, 0
	for n < len(q.frames) && n < maxBatchFrames {
		frame := q.frames[n].frame
		if n > 0 && size+len(frame) > maxBatch {
			break
		}
		size += len(frame)
		batch = append(batch, frame)
		n++
	}
	q.sent += uint64(n)
	q.remove(n)
	ping, q.ping = q.ping, 0
	if len(q.frames) > 0 {
		q.notify()
	}
	return batch, ping, whole
}

// expire drops frames older than life. It reports whether there were none.
func (q *queue) expire(now time.Time) (whole bool) {
	if q.life == 0 {
		return true
	}
	n := 0
	for n < len(q.frames) && now.Sub(q.frames[n].since) > q.life {
		n++
	}
	q.drop(n)
	return n == 0
}

// askEcho adds a ping to the next message. It replaces a ping that is not sent yet.
func (q *queue) askEcho(ping uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ping = ping
	q.notify()
}

// connect records that there is a connection.
func (q *queue) connect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open, q.ping = true, 0
	q.notify()
}

// disconnect records that there is no connection.
func (q *queue) disconnect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = false
	if !q.fresh {
		q.drop(len(q.frames))
	}
}

// QueueStatus is the state of the queue of one class of frames for one member.
type QueueStatus struct {
	Frames, Bytes int // queued
	// Sent frames were written to a stream; some of them may be lost. Dropped frames were never written.
	Sent, Dropped uint64
}

func (q *queue) status() QueueStatus {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueStatus{len(q.frames), q.bytes, q.sent, q.dropped}
}
