package keyspace

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
)

// ErrNoRoom is what a read fails with whose answer would take more memory than there is for it.
var ErrNoRoom = errors.New("keyspace: there is no room for the answer")

// A Room bounds the memory of answers while they are built. Its methods are safe for concurrent use.
type Room interface {
	// Take takes so many bytes, or returns an error, which is what the read then fails with.
	Take(bytes int) error
	// Give gives back some of what was taken.
	Give(bytes int)
}

// kvOverhead is about how much memory a key takes in an answer, and in the message made of that, besides the key and its
// value.
const kvOverhead = 256

type roomKey struct{}

// WithRoom has reads under ctx take what their answers need from room before they build them. They give back what they
// drop on the way; the caller gives back what the answer holds when that is no longer needed.
func WithRoom(ctx context.Context, room Room) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// roomOf returns nil if reads under ctx are not bounded.
func roomOf(ctx context.Context) Room {
	room, _ := ctx.Value(roomKey{}).(Room)
	return room
}

// size is about how much memory a KV takes in an answer.
func (kv *KV) size() int { return kvOverhead + len(kv.Key) + len(kv.Value) }

// AnswerLimits bound the answers to requests that write. What such a request reads changes nothing, so it is carried out
// whether or not there is room for its answer, and the limits may differ between members.
type AnswerLimits struct {
	Each int64 // bytes of one answer
	All  int64 // bytes of all that are not collected yet
}

// answerRoom is the room for answers to requests that write.
type answerRoom struct {
	limits AnswerLimits
	used   atomic.Int64 // of limits.All
}

// LimitAnswers sets the limits. It must be called before the first Writer.
func (s *Store) LimitAnswers(limits AnswerLimits) { s.answers.limits = limits }

// writerRoom is the room for the answer to one request of a writer.
type writerRoom struct {
	all     *answerRoom
	taken   int64
	dropped bool // something that was read did not fit
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

// answerFloor is the size up to which an answer is not counted among all.
const answerFloor = 16 << 10

// Held is the memory that an answer holds. It is counted until the answer is collected.
type Held struct{ bytes int64 }

// hold counts what was taken until the garbage collector finds that nobody holds the answer.
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

// beginAnswer forgets the answer to the request before.
func (w *Writer) beginAnswer() { w.room = writerRoom{all: &w.s.answers} }

// readInRoom reads for an answer. If there is no room, it drops what it has read and remembers that.
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
