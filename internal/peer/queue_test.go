package peer

import (
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1000, 0)

func taken(q *queue, at time.Time) string {
	batch, _, _ := q.take(nil, at)
	var texts []string
	for _, f := range batch {
		texts = append(texts, string(f))
	}
	return strings.Join(texts, " ")
}

func pushAll(t *testing.T, q *queue, texts string, want bool) {
	t.Helper()
	for _, text := range strings.Fields(texts) {
		if got := q.push([]byte(text), now); got != want {
			t.Errorf("push %s: whole %v, want %v", text, got, want)
		}
	}
}

func wantTaken(t *testing.T, q *queue, at time.Time, want string) {
	t.Helper()
	if got := taken(q, at); got != want {
		t.Errorf("took %q, want %q", got, want)
	}
}

func wantQueue(t *testing.T, q *queue, want QueueStatus) {
	t.Helper()
	if got := q.status(); got != want {
		t.Errorf("the queue is %+v, want %+v", got, want)
	}
}

func TestFullUrgentQueueDropsOldestFrame(t *testing.T) {
	q := newQueue(3, 100, true, 0)
	pushAll(t, q, "a b c", true)
	pushAll(t, q, "d e", false)
	wantQueue(t, q, QueueStatus{Frames: 3, Bytes: 3, Dropped: 2})
	wantTaken(t, q, now, "c d e")
	wantQueue(t, q, QueueStatus{Sent: 3, Dropped: 2})

	q = newQueue(100, 10, true, 0)
	pushAll(t, q, "aaaa bbbb", true)
	pushAll(t, q, "cccccc", false) // replaces the first frame
	wantTaken(t, q, now, "bbbb cccccc")
	pushAll(t, q, "aaaa bbbb", true)
	pushAll(t, q, "cccccccccccccccccccc", false) // a single frame always has room
	wantTaken(t, q, now, "cccccccccccccccccccc")
	wantQueue(t, q, QueueStatus{Sent: 3, Dropped: 3})
}

func TestFullBulkQueueDropsNewestFrame(t *testing.T) {
	q := newQueue(3, 10, false, 0)
	pushAll(t, q, "early", false) // no connection yet
	q.connect()
	pushAll(t, q, "a b c", true)
	pushAll(t, q, "d e", false)
	wantTaken(t, q, now, "a b c")
	pushAll(t, q, "cccccccccccccccccccc", true) // a single frame always has room
	pushAll(t, q, "d", false)
	wantTaken(t, q, now, "cccccccccccccccccccc")
	pushAll(t, q, "a b", true)
	q.disconnect()
	wantQueue(t, q, QueueStatus{Sent: 4, Dropped: 6})
	pushAll(t, q, "late", false)
	q.connect()
	wantTaken(t, q, now, "")
}

func TestOldUrgentFramesExpire(t *testing.T) {
	q := newQueue(100, 100, true, time.Second)
	pushAll(t, q, "a b", true)
	q.push([]byte("c"), now.Add(time.Second))
	q.disconnect() // does not affect urgent frames
	wantTaken(t, q, now.Add(time.Second+1), "c")
	wantQueue(t, q, QueueStatus{Sent: 1, Dropped: 2})
	pushAll(t, q, "d", true)
	wantTaken(t, q, now.Add(time.Second), "d")
	for age, want := range map[time.Duration]bool{time.Second: true, time.Second + 1: false} {
		pushAll(t, q, "e", true)
		if _, _, whole := q.take(nil, now.Add(age)); whole != want {
			t.Errorf("after %v it reports a whole queue: %v", age, whole)
		}
	}
}

func TestBatchesAreBounded(t *testing.T) {
	q := newQueue(1<<20, 1<<30, true, 0)
	for range maxBatchFrames + 1 {
		q.push([]byte("x"), now)
	}
	for _, want := range []int{maxBatchFrames, 1, 0} {
		if batch, _, _ := q.take(nil, now); len(batch) != want {
			t.Errorf("%d frames in a batch, want %d", len(batch), want)
		}
	}
	for _, size := range []int{maxBatch / 2, maxBatch / 2, 1, 2 * maxBatch, 1} {
		q.push(make([]byte, size), now)
	}
	for _, want := range []int{2, 1, 1, 1, 0} {
		if batch, _, _ := q.take(nil, now); len(batch) != want {
			t.Errorf("%d large frames in a batch, want %d", len(batch), want)
		}
	}
	wantQueue(t, q, QueueStatus{Sent: maxBatchFrames + 6})
}

func TestQueueNotifiesAboutRemainingFrames(t *testing.T) {
	q := newQueue(100, 1<<30, true, 0)
	q.push(make([]byte, maxBatch), now)
	q.push(make([]byte, maxBatch), now)
	q.askEcho(7)
	<-q.ready
	if _, ping, _ := q.take(nil, now); ping != 7 {
		t.Errorf("the ping is %d, want 7", ping)
	}
	select {
	case <-q.ready:
	default:
		t.Error("no notification of more frames")
	}
	if _, ping, _ := q.take(nil, now); ping != 0 {
		t.Errorf("the ping is %d again", ping)
	}
}
