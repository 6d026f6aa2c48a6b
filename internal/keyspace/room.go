package keyspace

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
)

// ErrNoRoom is the error of a read whose answer would exceed the memory that its Room allows.
var ErrNoRoom = errors.New("keyspace: there is no room for the answer")

// A Room bounds the memory of answers while they are being built. Its methods are safe for concurrent use.
type Room interface {
	// Take reserves bytes, or returns the error with which the read fails.
	Take(bytes int) error
	// Give releases reserved bytes.
	Give(bytes int)
}

// kvOverhead is roughly the memory of a key in an answer and in the message made from it, besides the key and its
// value.
const kvOverhead = 256

type roomKey struct{}

// WithRoom returns a context under which reads reserve memory for their answers from room before they build them.
// Reads release what they discard. The caller releases the rest when it no longer needs the answer.
func WithRoom(ctx context.Context, room Room) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// roomOf returns the context's room, or nil if reads under ctx are not bounded.
func roomOf(ctx context.Context) Room {
	room, _ := ctx.Value(roomKey{}).(Room)
	return room
}

// size is roughly the memory of a KV in an answer.
func (kv *KV) size() int { return kvOverhead + len(kv.Key) + len(kv.Value) }

// AnswerLimits bound the answers to requests that write. Such a request is executed whether or not its answer fits,
// because its reads change nothing. So the limits may differ between members.
type AnswerLimits struct {
	Each int64 // bytes of one answer; 0: no limit
	All  int64 // bytes of all answers that are not garbage-collected yet; 0: no limit
}

// answerRoom counts the memory of answers to requests that write.
type answerRoom struct {
	limits AnswerLimits
	used   atomic.Int64 // bytes, bounded by limits.All
}

// LimitAnswers sets the limits. The caller must call it before the first Begin.
func (s *Store) LimitAnswers(limits AnswerLimits) { s.answers.limits = limits }

// writerRoom is the Room for the answer to one request of a Writer.
type writerRoom struct {
	all     *answerRoom
	taken   int64
	dropped bool // something did not fit and was dropped
}

// Take implements Room.
func (r *writerRoom) Take(bytes int) error {
	n := int64(bytes)
	if l := r.all.limits; l.Each > 0 && r.taken+n > l.Each || l.All > 0 && r.all.used.Load()+r.taken+n > l.All {
		return ErrNoRoom
	}
	r.taken += n
	return nil
}

// Give implements Room.
func (r *writerRoom) Give(bytes int) { r.taken -= int64(bytes) }

// answerFloor is the size in bytes up to which an answer does not count towards AnswerLimits.All.
const answerFloor = 16 << 10

// Held is the memory of an answer. It counts until the answer is garbage-collected.
type Held struct{ bytes int64 }

// hold counts the reserved memory until the garbage collector frees the returned Held.
func (r *writerRoom) hold() *Held {
	if r.taken <= answerFloor {
		return nil
	}
	h := &Held{r.taken}
	r.all.used.Add(h.bytes)
	all := r.all
	runtime.AddCleanup(h, func(bytes int64) { all.used.Add(-bytes) }, h.bytes)
	return h
}

// beginAnswer starts counting for a new answer.
func (w *Writer) beginAnswer() { w.room = writerRoom{all: &w.s.answers} }

// readInRoom runs read within the writer's room. If the result does not fit, it releases the memory and marks the
// answer as dropped.
func (w *Writer) readInRoom(read func(ctx context.Context) error) (dropped bool, err error) {
	if w.room.all == nil {
		w.beginAnswer()
	}
	before := w.room.taken
	err = read(WithRoom(context.Background(), &w.room))
	if !errors.Is(err, ErrNoRoom) {
		return false, err
	}
	w.room.taken, w.room.dropped = before, true
	return true, nil
}
