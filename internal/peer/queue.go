package peer

import (
	"sync"
	"time"
)

const (
	// maxBatch bounds the bytes of frames in one message, unless a single frame is larger.
	maxBatch = 256 << 10
	// maxBatchFrames bounds their number.
	maxBatchFrames = 1024
)

// queue holds the frames of one class that wait for one stream.
type queue struct {
	maxFrames, maxBytes int
	// fresh is set if the oldest gives way to the newest, and frames are taken without a connection.
	fresh bool
	life  time.Duration // for how long a frame is worth sending; 0: for ever
	ready chan struct{} // holds one: there may be something to take

	mu      sync.Mutex
	open    bool // there is a connection
	frames  []waiting
	bytes   int
	ping    uint64 // to be sent with the next batch
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

// push adds a frame, and says whether all that was to be sent is still there.
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

// full says whether there is no room for so many more bytes. There is always room for one frame.
func (q *queue) full(more int) bool {
	return len(q.frames) > 0 && (len(q.frames) >= q.maxFrames || q.bytes+more > q.maxBytes)
}

// drop forgets the n oldest frames.
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
		q.frames = nil // gives the memory of a burst back
	}
}

// take removes the oldest frames, as many as go into one message, and the ping. whole says that none has waited for too
// long.
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

// expire drops what has waited for too long, and says whether nothing has.
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

// askEcho has the next message carry a ping. One that has not left yet is replaced.
func (q *queue) askEcho(ping uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ping = ping
	q.notify()
}

// connect says that there is a connection.
func (q *queue) connect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open, q.ping = true, 0
	q.notify()
}

// disconnect says that there is none any more.
func (q *queue) disconnect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = false
	if !q.fresh {
		q.drop(len(q.frames))
	}
}

// QueueStatus tells of the frames of one class for one member.
type QueueStatus struct {
	Frames, Bytes int // that wait
	// Sent were given to a stream; some of them may have been lost with it. Dropped were not.
	Sent, Dropped uint64
}

func (q *queue) status() QueueStatus {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueStatus{len(q.frames), q.bytes, q.sent, q.dropped}
}
