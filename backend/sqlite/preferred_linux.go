package sqlite

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/claim"
)

// A process that waits for a holder shares a lock on a byte for that holder, besides the lock of its ticket. The notes of a
// queue have the holders that were preferred, the last first. One of them counts while its byte is locked.
const (
	holderLock    = 1 << 60
	holderBits    = 32
	preferredAt   = 8 * passedKept // in the notes of a queue
	preferredKept = 8              // holders; if more are preferred, the first of them is forgotten
)

// holderOf returns the number of a holder, which is not 0. Two holders have the same number once in four billion.
func holderOf(id string) uint32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // cannot fail
	return max(1, uint32(h.Sum64()>>32)^uint32(h.Sum64()))
}

// preferredPlace returns the place of a preferred holder, which identifies it to those that pass it over.
func preferredPlace(holder uint32) int64 { return claim.FrontPlace - int64(holder) }

func holderByte(queue, holder uint32) int64 {
	return holderLock + int64(queue)<<holderBits + int64(holder)
}

// showHolder shows that this process waits for a holder.
func (t *ticketFile) showHolder(queue, holder uint32) error {
	at := holderByte(queue, holder)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[at] == 0 {
		if err := t.lockByte(at, unix.F_RDLCK); err != nil {
			return err
		}
	}
	t.waiting[at]++
	return nil
}

// hideHolder ends one showHolder. If no process waits for the holder, it is no longer preferred.
func (t *ticketFile) hideHolder(queue, holder uint32) error {
	at := holderByte(queue, holder)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[at] == 0 {
		return nil
	}
	if t.waiting[at]--; t.waiting[at] > 0 {
		return nil
	}
	delete(t.waiting, at)
	return t.lockByte(at, unix.F_UNLCK)
}

// awaits reports whether any process waits for a holder.
func (t *ticketFile) awaits(queue, holder uint32) (bool, error) {
	at := holderByte(queue, holder)
	t.mu.Lock()
	here := t.waiting[at] > 0
	t.mu.Unlock()
	if here {
		return true, nil
	}
	_, found, err := t.firstLock(at, at)
	return found, err
}

// prefer makes a holder the first, if a process waits for it, and reports whether one does.
func (t *ticketFile) prefer(queue, holder uint32) (bool, error) {
	waits, err := t.awaits(queue, holder)
	if err != nil || !waits {
		return false, err
	}
	all, err := t.preferred(queue)
	if err != nil {
		return false, err
	}
	all = slices.DeleteFunc(all, func(other uint32) bool { return other == holder })
	return true, t.writePreferred(queue, slices.Insert(all, 0, holder))
}

// passHolder makes a holder no longer preferred.
func (t *ticketFile) passHolder(queue, holder uint32) error {
	all, err := t.preferred(queue)
	if err != nil || !slices.Contains(all, holder) {
		return err
	}
	return t.writePreferred(queue, slices.DeleteFunc(all, func(other uint32) bool { return other == holder }))
}

// preferred returns the preferred holders of a queue, the first first.
func (t *ticketFile) preferred(queue uint32) ([]uint32, error) {
	var note [4 * preferredKept]byte
	if n, err := t.file.ReadAt(note[:], noteOf(queue)+preferredAt); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	} else if n == 0 { // most files have no notes
		return nil, nil
	}
	var all []uint32
	for i := range preferredKept {
		if holder := binary.LittleEndian.Uint32(note[4*i:]); holder != 0 {
			all = append(all, holder)
		}
	}
	return all, nil
}

func (t *ticketFile) writePreferred(queue uint32, all []uint32) error {
	var note [4 * preferredKept]byte
	for i, holder := range all[:min(len(all), preferredKept)] {
		binary.LittleEndian.PutUint32(note[4*i:], holder)
	}
	_, err := t.file.WriteAt(note[:], noteOf(queue)+preferredAt)
	return err
}

// leaveFor deletes a ticket of this process and what shows its holder.
func (t *ticketFile) leaveFor(queue uint32, own ownTicket) error {
	err := t.leave(queue, own.place)
	if own.holder != 0 {
		err = errors.Join(err, t.hideHolder(queue, own.holder), t.passHolder(queue, own.holder))
	}
	return err
}
